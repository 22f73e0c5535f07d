"""E3P210: EAGLE with an EAGLE-3 draft.

No release (0.5.9 to 0.5.23) compares the flag with the draft: aux states are captured, and d2t is
picked up, only for EAGLE3 (``eagle_worker*.py``, ``spec_aux_hidden_state.py``).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, eagle3_signs

PAGE = Page(
    checks="`--speculative-algorithm` EAGLE or NEXTN against signs of an EAGLE-3 draft: its "
    "architecture, a `d2t` tensor, an `fc` three states wide.",
    why="With EAGLE no aux states are captured, `fc` is skipped because the widths agree, the map "
    "is not picked up, and the target's head replaces the draft's. Accept length is 1.00 and "
    "nothing warns.",
    evidence="The argument, and what says EAGLE-3.",
    fix="Start the server with `--speculative-algorithm EAGLE3`.",
    ignore="Never with an EAGLE-3 draft.",
)


def _check(situation: Situation) -> list[Result]:
    if situation.algorithm not in {"EAGLE", "NEXTN"}:
        return []
    signs = eagle3_signs(situation)
    if not signs:
        return []
    return [
        RULE.finding(
            "error",
            f"the draft is EAGLE-3 and the algorithm is {situation.algorithm}: no aux states, no "
            "fc, no vocabulary map, the target's head",
            [Seen("algorithm", situation.algorithm, "--speculative-algorithm"), *signs],
            "start the server with `--speculative-algorithm EAGLE3`",
        )
    ]


RULE = StaticRule("E3P210", "EAGLE given an EAGLE-3 draft", PAGE, _check)
