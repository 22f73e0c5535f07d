"""E3P602: the first draft position is fine and the later ones are not."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen
from sglang_eagle3_probe.rules.evidence import Evidence

PAGE = Page(
    checks="Whether the conditional acceptance rate of the second draft position is surely less "
    "than half that of the first (95 % intervals apart), given that the first is right at least "
    "30 % of the time.",
    why="The first position reads the target's states, the later ones the draft's own. A cliff "
    "between them points away from layer ids and map, and to the recurrence: a norm on the carried "
    "state (norm_output), positions, the draft's KV cache, or a second layer.",
    evidence="The `verify_round` records.",
    fix="Compare norm_output, norm_before_residual and num_hidden_layers of the draft's config "
    "with its training; try another attention back end for the draft.",
    ignore="With drafts trained for one step only (no training-time test), where it is the draft.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    rates = evidence.acceptance.conditional
    if len(rates) < 2 or rates[1].seen < 100 or (rates[0].share or 0.0) < 0.3:
        return []
    first, second = rates[0], rates[1]
    if second.interval.high >= first.interval.low / 2:
        return []
    return [
        RULE.finding(
            "warning",
            f"drafts are right {first.share:.0%} of the time at the first position and only "
            f"{second.share:.0%} at the second (given the first): what the draft hands itself from "
            "step to step is off",
            [
                Seen("conditional rate, position 0", f"{first.hits}/{first.seen}", "verify_round"),
                Seen(
                    "conditional rate, position 1", f"{second.hits}/{second.seen}", "verify_round"
                ),
            ],
            "compare norm_output, norm_before_residual and num_hidden_layers of the draft's config "
            "with its training; then try another draft attention back end",
        )
    ]


RULE = Rule("E3P602", "acceptance falls off after the first draft", PAGE, _check)
