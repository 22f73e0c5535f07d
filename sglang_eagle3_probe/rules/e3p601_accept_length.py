"""E3P601: almost nothing is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.acceptance import INTERVAL_OVER
from sglang_eagle3_probe.rules.base import Finding, Page, Result, Rule, Seen
from sglang_eagle3_probe.rules.evidence import Evidence

LOW = 1.5
"""Accept length under which speculation rarely pays: a draft as trained reaches 2 to 3.5 with three
steps, and the wiring faults seen so far gave 1.0 to 1.6."""
SURELY_UNDER = 1.7
"""What the upper end of the interval must stay under."""
ROUNDS = 50

PAGE = Page(
    checks=f"Whether the accept length (bonus token included) is under {LOW} and the upper end of "
    f"its 95 % interval under {SURELY_UNDER}, with at least two draft steps and {ROUNDS} rounds.",
    why="1.0 means that no draft token was ever right. Such a server is slower than one without "
    "speculation.",
    evidence="The `verify_round` records, of one rank per data-parallel group.",
    fix="First whatever E3P1xx to E3P4xx report. If they report nothing, the fault is in what they "
    "cannot see: the values of the states, positions, or the training itself.",
    ignore="On traffic far from the training data, or at high temperature.",
)

_LEFT = (
    "check next, in this order: that the draft belongs to exactly this target (quantised, rotated "
    "or fine-tuned targets differ); that the accuracy of training was measured on such prompts and "
    "with the same chat template; rope theta, scaling and maximum positions of the draft's config; "
    "the same request with --disable-cuda-graph and another --attention-backend"
)


def _check(evidence: Evidence, earlier: Sequence[Result]) -> list[Result]:
    seen = evidence.acceptance
    length, interval = seen.accept_length, seen.accept_length_interval
    if length is None or interval is None or max(seen.steps, default=0) < 2 or length >= LOW:
        return []
    if seen.rounds < ROUNDS or interval.high >= SURELY_UNDER:
        return [
            RULE.unknown(
                f"the accept length is {length:.2f} [{interval.low:.2f}, {interval.high:.2f}], and "
                f"{seen.rounds} rounds are too few to be sure that it is low",
                "serve more requests, at least a few hundred rounds",
            )
        ]
    causes = sorted({r.code for r in earlier if isinstance(r, Finding) and r.severity == "error"})
    first = seen.unconditional[0].share or 0.0
    if causes:
        message = (
            f"accept length {length:.2f}, as is to be expected with {', '.join(causes)}; the first "
            f"draft token is right in {first:.0%} of the rounds"
        )
        fix = f"repair {', '.join(causes)} first, then measure again"
    else:
        message = (
            f"accept length {length:.2f} although the wiring that was seen looks right; the first "
            f"draft token is right in {first:.0%} of the rounds"
        )
        fix = _LEFT
    return [
        RULE.finding(
            "warning",
            message,
            [
                Seen("accept length", round(length, 4), f"verify_round, {seen.rounds} rounds"),
                Seen(
                    "95 % interval",
                    [round(interval.low, 4), round(interval.high, 4)],
                    f"over {INTERVAL_OVER}",
                ),
            ],
            fix,
        )
    ]


RULE = Rule("E3P601", "almost nothing is accepted", PAGE, _check)
