"""E3P318: ``target_hidden_size`` is null.

``llama_eagle3.py`` of 0.5.9 to 0.5.23 takes the attribute whenever it exists and multiplies it, so
``None`` ends in a ``TypeError``. ``kimi_k25_eagle3.py`` falls back to ``hidden_size``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import LLAMA, StaticRule, seen_key, served_class

PAGE = Page(
    checks="Whether the draft's config carries `target_hidden_size` with the value null.",
    why="The Llama draft class multiplies the value by the number of aux states as soon as the key "
    "exists; null stops the server with a TypeError.",
    evidence="The key.",
    fix="Delete `\"target_hidden_size\": null` from the draft's config.json, or write the target's "
    "hidden size.",
    ignore="Never with `LlamaForCausalLMEagle3`.",
)


def _check(situation: Situation) -> list[Result]:
    config = situation.draft.config
    if "target_hidden_size" not in config or config["target_hidden_size"] is not None:
        return []
    if served_class(situation) != LLAMA:
        return []
    return [
        RULE.finding(
            "error",
            "`target_hidden_size` is null: the draft class multiplies it and the server stops with "
            "a TypeError",
            [seen_key(situation, "target_hidden_size")],
            'delete `"target_hidden_size": null` from the draft\'s config.json',
        )
    ]


RULE = StaticRule("E3P318", "target_hidden_size is null", PAGE, _check)
