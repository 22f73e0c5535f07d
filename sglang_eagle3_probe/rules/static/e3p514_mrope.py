"""E3P514: three-part rotary positions in a draft for a text-only target.

``llama_eagle3.py`` (0.5.9 to 0.5.23) takes ``forward_batch.mrope_positions`` as soon as the draft's
rope block holds ``mrope_section``; text-only targets leave it empty.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.rope import rope_of
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import LLAMA, StaticRule, key, served_class, target_key

PAGE = Page(
    checks="`mrope_section` in the draft's rope block against the target's.",
    why="With it the draft reads the three-part positions of vision models. A target without them "
    "provides none.",
    evidence="The rope blocks of both configs.",
    fix='Remove `"mrope_section"` from the draft\'s `rope_scaling` / `rope_parameters`, or serve '
    "the vision model it was trained for.",
    ignore="When the target uses such positions under another key.",
)


def _check(situation: Situation) -> list[Result]:
    draft = rope_of(situation.draft.config).scaling
    target = rope_of(situation.target.text_config).scaling
    outer = rope_of(situation.target.config).scaling
    if served_class(situation) != LLAMA or "mrope_section" not in draft:
        return []
    if "mrope_section" in target or "mrope_section" in outer:
        return []
    if situation.target.text_config is not situation.target.config:
        return []
    return [
        RULE.finding(
            "warning",
            "the draft wants three-part rotary positions, and the target's config has none",
            [
                Seen("mrope_section", draft.get("mrope_section"), key(situation, "rope_scaling")),
                Seen("mrope_section", None, target_key(situation, "rope_scaling")),
            ],
            'remove `"mrope_section"` from the draft\'s `rope_scaling`, or serve the vision model '
            "it was trained for",
        )
    ]


RULE = StaticRule("E3P514", "mrope draft on a text-only target", PAGE, _check)
