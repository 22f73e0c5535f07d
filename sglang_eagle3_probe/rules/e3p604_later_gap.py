"""E3P604: the first draft token is as promised, later ones are not."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.prediction import LARGE, LEAST_ROUNDS
from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.earlier_errors import errors, repair_first
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.gap_evidence import GIVEN_BY, gap_evidence

PAGE = Page(
    checks=f"Whether a later draft token is right less often (given the ones before) than the "
    f"trainer measured, by surely more than {LARGE:.2f}, while the first is not "
    f"(95 % intervals, at least {LEAST_ROUNDS} rounds that got so far).",
    why="Layer ids, `fc` and map serve every position alike, so they are not it. From the second "
    "position on the draft reads its own state: the norm of the carried state, positions and "
    "rotary settings, and the draft's KV cache come in.",
    evidence=GIVEN_BY,
    fix="Compare norm_output, norm_before_residual, rope settings and num_hidden_layers of the "
    "draft's config with its training; try another draft attention back end and "
    "--disable-cuda-graph.",
    ignore="When the trainer's later accuracies were measured with the true tokens' states instead "
    "of the draft's own (no training-time test): then they promise too much.",
)


def _check(evidence: Evidence, earlier: Sequence[Result]) -> list[Result]:
    compared = evidence.understood.comparison
    if compared is None or compared.pattern != "later":
        return []
    worst = next(g for g in compared.conditional[1:] if g.interval.low > LARGE)
    return [
        RULE.finding(
            "warning",
            f"the first draft token is as the trainer promised, but draft {worst.position} (given "
            f"the ones before) is right {worst.measured.share or 0.0:.0%} of the time instead of "
            f"{worst.predicted:.0%}: what the draft hands itself from step to step",
            gap_evidence(compared),
            repair_first(
                errors(earlier),
                "compare norm_output, norm_before_residual and the rope settings of the draft's "
                "config with its training; then try another draft attention back end, and "
                "--disable-cuda-graph",
            ),
        )
    ]


RULE = Rule("E3P604", "later draft tokens worse than promised", PAGE, _check)
