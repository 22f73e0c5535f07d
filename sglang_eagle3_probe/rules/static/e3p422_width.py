"""E3P422: the draft is as wide as another model, and ``target_hidden_size`` does not say so.

Both draft classes size ``fc`` by ``target_hidden_size`` or, without it, by the draft's own
``hidden_size`` (0.5.9 to 0.5.23), and share the target's embedding when the two agree.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class, target_key
from sglang_eagle3_probe.rules.static.draft_module import input_width

PAGE = Page(
    checks="The width of one target state as the draft expects it (`target_hidden_size`, else the "
    "draft's `hidden_size`) against the target's `hidden_size`.",
    why="The target's states do not fit the draft's `fc`, or the target's embedding does not fit "
    "the draft: the server stops at the first forward, or the draft belongs to another target.",
    evidence="The keys of both configs.",
    fix="Set `\"target_hidden_size\"` in the draft's config.json to the target's hidden size if "
    "the draft is narrower on purpose (it then needs its own `embed_tokens.weight`); otherwise "
    "use the draft of this target.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    expected, target = input_width(situation), situation.hidden
    if expected is None or target is None or expected == target or not known_class(situation):
        return []
    return [
        RULE.finding(
            "error",
            f"the draft expects target states {expected} wide and the target's are {target}",
            [
                Seen(
                    "target_hidden_size",
                    situation.draft.config.get("target_hidden_size"),
                    key(situation, "target_hidden_size"),
                ),
                Seen("hidden_size", situation.draft_hidden, key(situation, "hidden_size")),
                Seen("hidden_size", target, target_key(situation, "hidden_size")),
            ],
            f'set `"target_hidden_size": {target}` in the draft\'s config.json if it was trained '
            "for this target; otherwise use the draft of this target",
        )
    ]


RULE = StaticRule("E3P422", "draft made for states of another width", PAGE, _check)
