"""E3P120: number of states times width is not what ``fc`` takes.

``fc`` is ``Linear(n_aux * target_hidden_size, hidden_size)`` in both draft classes and the stored
weight must have that shape; capture gives one state per boundary (0.5.9 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import evidence, in_force

PAGE = Page(
    checks="Number of layer ids in force (3 by default) times the target's hidden size against the "
    "input width of `fc.weight` in the checkpoint.",
    why="The concatenation does not fit `fc`: the draft does not load, or stops at the first "
    "request.",
    evidence="The list, the target's hidden size, the shape of `fc.weight`.",
    fix='Name as many ids as `fc` has blocks: `"eagle_config": '
    '{"eagle_aux_hidden_state_layer_ids": [...]}`.',
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    width, fc = situation.hidden, situation.fc_in
    if found is None or not width or fc is None or len(found.boundaries) * width == fc:
        return []
    blocks = f"{fc // width} states" if fc % width == 0 else f"no whole number of {width}"
    return [
        RULE.finding(
            "error",
            f"{len(found.boundaries)} states of {width} are {len(found.boundaries) * width} wide, "
            f"and the draft's fc takes {fc} ({blocks})",
            [
                *evidence(situation, found),
                Seen("hidden size", width, "target config"),
                Seen("fc input width", fc, "draft checkpoint: fc.weight"),
            ],
            'name as many ids as fc has blocks in `"eagle_config": '
            '{"eagle_aux_hidden_state_layer_ids": [...]}`, or serve the target of this draft',
        )
    ]


RULE = StaticRule("E3P120", "states do not fit fc", PAGE, _check)
