"""E3P320: an activation other than silu.

``LlamaMLP`` (``models/llama.py``) and ``DeepseekV2MLP`` (``models/deepseek_v2.py``) raise a
``ValueError`` for anything else, 0.5.9 to 0.5.23.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule, known_class, seen_key

PAGE = Page(
    checks="`hidden_act` of the draft's config.",
    why="The draft's MLP accepts only silu; anything else stops the server.",
    evidence="The key.",
    fix='Train the draft with `"hidden_act": "silu"`. Changing the key alone would start the '
    "server with another function than the draft was trained with.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    found = situation.draft.config.get("hidden_act")
    if not known_class(situation) or not isinstance(found, str) or found == "silu":
        return []
    return [
        RULE.finding(
            "error",
            f"SGLang {situation.release} refuses the draft: its MLP takes silu, not {found}",
            [seen_key(situation, "hidden_act")],
            'train the draft with `"hidden_act": "silu"`',
        )
    ]


RULE = StaticRule("E3P320", "activation that the draft's MLP refuses", PAGE, _check)
