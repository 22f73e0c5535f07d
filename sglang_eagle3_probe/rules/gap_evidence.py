"""The numbers that the rules on prediction (E3P603 to E3P605) rest on."""

from __future__ import annotations

from sglang_eagle3_probe.analysis.prediction import Comparison
from sglang_eagle3_probe.rules.base import Seen

GIVEN_BY = "Only with `report --predicted FILE`: the trainer's per-step accuracies (the draft's "
GIVEN_BY += "`trainer_accuracy.json` will do) against the conditional rates of `verify_round`, "
GIVEN_BY += "rounds verified greedily alone where there are enough of them."


def gap_evidence(compared: Comparison) -> list[Seen]:
    """Predicted and measured rates per position, and the lengths."""
    source = compared.prediction.source
    rows = [
        Seen(
            f"draft {gap.position}, given the ones before",
            f"predicted {gap.predicted:.3f}, measured {gap.measured.hits}/{gap.measured.seen} = "
            f"{gap.measured.share or 0.0:.3f}, gap {gap.gap:+.3f} "
            f"[{gap.interval.low:+.3f}, {gap.interval.high:+.3f}]",
            f"{source}; verify_round",
        )
        for gap in compared.conditional
    ]
    rows.append(
        Seen(
            "accept length",
            f"predicted {compared.predicted_length:.2f}, measured {compared.measured_length:.2f}",
            f"by {compared.prediction.expected.reading}, {compared.steps} steps",
        )
    )
    if compared.sampling_share and not compared.greedy_only:
        rows.append(
            Seen(
                "rounds verified by sampling",
                f"{compared.sampling_share:.0%}; accuracies are about the target's argmax",
                "verify_round.greedy",
            )
        )
    return rows
