"""E3P605: every position is a little worse than promised."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.prediction import LARGE, SMALL
from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.earlier_errors import errors, repair_first
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.gap_evidence import GIVEN_BY, gap_evidence

PAGE = Page(
    checks=f"Whether most positions are right less often than the trainer measured, by surely more "
    f"than {SMALL:.2f} and none by surely more than {LARGE:.2f} (95 % intervals).",
    why="A small loss everywhere is what traffic unlike the training data looks like, or a target "
    "quantised or tuned after the draft was trained. One layer id off by one can look the same.",
    evidence=GIVEN_BY,
    fix="Measure the trainer's accuracy on prompts of this traffic; if it holds there, compare the "
    "target's precision with training, and the layer ids in both units.",
    ignore="When the trainer's held-out set is easier than the traffic and the length is "
    "acceptable.",
)


def _check(evidence: Evidence, earlier: Sequence[Result]) -> list[Result]:
    compared = evidence.understood.comparison
    if compared is None or compared.pattern != "uniform":
        return []
    return [
        RULE.finding(
            "note",
            f"every draft position is a little worse than the trainer promised (accept length "
            f"{compared.measured_length:.2f} instead of {compared.predicted_length:.2f}): other "
            "traffic than in training, a quantised target, or one layer off by one",
            gap_evidence(compared),
            repair_first(
                errors(earlier),
                "measure the trainer's accuracy on prompts of this traffic; if it holds there, "
                "compare the target's precision and the layer ids with training",
            ),
        )
    ]


RULE = Rule("E3P605", "all draft tokens a little worse than promised", PAGE, _check)
