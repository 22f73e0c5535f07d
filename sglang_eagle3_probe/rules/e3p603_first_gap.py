"""E3P603: the first draft token is worse than the trainer promised."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.prediction import LARGE, LEAST_ROUNDS
from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.earlier_errors import errors, repair_first
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.gap_evidence import GIVEN_BY, gap_evidence

PAGE = Page(
    checks=f"Whether the first draft token is right less often than the trainer measured, by "
    f"surely more than {LARGE:.2f} (95 % interval, at least {LEAST_ROUNDS} rounds).",
    why="At the first position nothing has been at work but the target's states, `fc`, one pass of "
    "the draft, its head and the vocabulary map. A gap there is a fault of wiring, or the target "
    "is another model than in training.",
    evidence=GIVEN_BY,
    fix="First what E3P1xx to E3P4xx report. Then: the layer ids in the other unit, the order of "
    "the `fc` blocks, the map's convention, the embedding in force; run the doctor on the two "
    "folders.",
    ignore="When the traffic is of another kind than what the trainer measured on (language, chat "
    "template, code), or is sampled at high temperature.",
)


def _check(evidence: Evidence, earlier: Sequence[Result]) -> list[Result]:
    compared = evidence.understood.comparison
    if compared is None or compared.pattern != "first":
        return []
    first, causes = compared.conditional[0], errors(earlier)
    because = f", as is to be expected with {', '.join(causes)}" if causes else ""
    return [
        RULE.finding(
            "warning",
            f"the first draft token is right {first.measured.share or 0.0:.0%} of the time and the "
            f"trainer promised {first.predicted:.0%}{because}: layer ids, fc, map or embedding",
            gap_evidence(compared),
            repair_first(
                causes,
                "check the unit and order of the layer ids, the map's convention and the embedding "
                "in force (sglang-eagle3-probe doctor); then whether the target is the one trained "
                "with, and the prompts and chat template are of the same kind",
            ),
        )
    ]


RULE = Rule("E3P603", "first draft token worse than promised", PAGE, _check)
