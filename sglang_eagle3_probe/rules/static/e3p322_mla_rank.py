"""E3P322: an MLA draft without ``q_lora_rank``.

``models/kimi_k25_eagle3.py`` 0.5.12 to 0.5.23 raises a ``ValueError`` when it is None.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule, is_mla, seen_key

PAGE = Page(
    checks="`q_lora_rank` in the config of an MLA draft.",
    why="The class replaces the fused projection of queries and keys and refuses a draft that has "
    "no compressed queries.",
    evidence="The key.",
    fix='Train the draft with `"q_lora_rank"` set to a number.',
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not is_mla(situation) or "q_lora_rank" not in situation.draft.config:
        return []
    if situation.draft.config["q_lora_rank"] is not None:
        return []
    return [
        RULE.finding(
            "error",
            f"SGLang {situation.release} refuses an MLA draft without q_lora_rank",
            [seen_key(situation, "q_lora_rank")],
            'train the draft with `"q_lora_rank"` set to a number',
        )
    ]


RULE = StaticRule("E3P322", "MLA draft without q_lora_rank", PAGE, _check)
