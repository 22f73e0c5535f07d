"""E3P113: a layer is named twice.

Every class captures a boundary once (0.5.9 to 0.5.23), and the default [2, N//2, N-3] repeats on
targets of 4 and 5 layers.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import evidence, in_force

PAGE = Page(
    checks="Whether a boundary occurs twice in the list in force, the default included.",
    why="Each boundary is captured once. The draft then gets fewer states than its `fc` takes, and "
    "the server stops at the first request.",
    evidence="The list, the number of layers, the boundaries in force.",
    fix='Name distinct ids in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}`, as '
    "many as `fc` has blocks.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    if found is None or len(set(found.boundaries)) == len(found.boundaries):
        return []
    twice = sorted({h for h in found.boundaries if found.boundaries.count(h) > 1})
    return [
        RULE.finding(
            "error",
            f"{found.list_text} names boundary {', '.join(map(str, twice))} more than once, and "
            "each is captured once",
            evidence(situation, found),
            'name distinct ids in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}`',
        )
    ]


RULE = StaticRule("E3P113", "a layer is named twice", PAGE, _check)
