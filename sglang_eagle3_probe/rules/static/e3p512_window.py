"""E3P512: a sliding window in the draft's config.

``llama_eagle3.py`` builds full attention whatever ``sliding_window`` and ``layer_types`` say; a
window comes from ``--speculative-draft-window-size`` alone, from 0.5.12. MLA drafts have none.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    LLAMA,
    StaticRule,
    seen_key,
    served_class,
    since,
    whole,
)

PAGE = Page(
    checks="`sliding_window`, `use_sliding_window` and `layer_types` of the draft against "
    "`--speculative-draft-window-size`.",
    why="SGLang does not read the draft's window. A draft trained with one attends to the whole "
    "context when served, and acceptance falls beyond the window.",
    evidence="The keys and the argument.",
    fix="Start with `--speculative-draft-window-size N`, N as in training (SGLang 0.5.12 and "
    'later); or remove `"sliding_window"` from the config if training did not use it.',
    ignore="Keys copied from the target's config that the trainer ignored.",
)


def _check(situation: Situation) -> list[Result]:
    config = situation.draft.config
    window = situation.draft.integer("sliding_window")
    if served_class(situation) != LLAMA or window is None or window <= 0:
        return []
    types = config.get("layer_types")
    if config.get("use_sliding_window") is False and types is None:
        return []
    if isinstance(types, list) and "sliding_attention" not in types:
        return []
    if whole(situation, "speculative_draft_window_size") == window:
        return []
    trained = isinstance(types, list) or bool(config.get("speculators_model_type"))
    fix = (
        f"start with `--speculative-draft-window-size {window}` if training used the window"
        if since(situation, "0.5.12")
        else "upgrade SGLang to 0.5.12 or later and start it with "
        f"`--speculative-draft-window-size {window}` if training used the window"
    )
    return [
        RULE.finding(
            "warning" if trained else "note",
            f"SGLang does not read the draft's sliding_window {window}: it attends to the whole "
            "context",
            [
                seen_key(situation, "sliding_window"),
                seen_key(situation, "layer_types"),
                Seen(
                    "--speculative-draft-window-size",
                    situation.argument("speculative_draft_window_size"),
                    "arguments",
                ),
            ],
            fix,
        )
    ]


RULE = StaticRule("E3P512", "sliding window of the draft is not read", PAGE, _check)
