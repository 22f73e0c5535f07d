"""E3P122: ``eagle_config`` or its list is not what SGLang expects.

The reader is wrapped in a bare ``except`` (0.5.9 to 0.5.23): anything malformed means the default,
without a log line; the draft class itself stops on a block that is not a mapping.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation, int_list
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import NESTED, StaticRule, eagle3_served, key

PAGE = Page(
    checks="`eagle_config` is a mapping, and its `eagle_aux_hidden_state_layer_ids` a list of "
    "whole numbers.",
    why="SGLang reads the block inside a catch-all. A wrong type means the default layers, or a "
    "failure far from its cause.",
    evidence="The value and its type.",
    fix='Write `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 28]}` with your own '
    "numbers, as a JSON list of whole numbers.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    config = situation.draft.config
    if "eagle_config" not in config or not eagle3_served(situation):
        return []
    found = config["eagle_config"]
    if found is None:
        return []
    fix = (
        'write `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}` with a JSON list of '
        "whole numbers"
    )
    block = situation.eagle_config
    if block is None:
        return [
            RULE.finding(
                "error",
                f"`eagle_config` is a {type(found).__name__} instead of a mapping",
                [Seen("eagle_config", type(found).__name__, key(situation, "eagle_config"))],
                fix,
            )
        ]
    ids = block.get("eagle_aux_hidden_state_layer_ids")
    if ids is None or int_list(ids) is not None:
        return []
    return [
        RULE.finding(
            "error",
            "`eagle_aux_hidden_state_layer_ids` is not a list of whole numbers",
            [Seen("layer ids", repr(ids)[:80], key(situation, NESTED))],
            fix,
        )
    ]


RULE = StaticRule("E3P122", "eagle_config is malformed", PAGE, _check)
