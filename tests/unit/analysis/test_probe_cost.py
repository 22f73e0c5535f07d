"""The probe's own cost, by hand-computed examples."""

from __future__ import annotations

import pytest

from sglang_eagle3_probe.analysis.probe_cost import probe_cost
from sglang_eagle3_probe.trace.cost_records import ProbeCost, SeamCost


def record(rounds: int, verify_us: float, other_us: float = 0.0, cpu_ms: float = 0.0) -> ProbeCost:
    return ProbeCost(
        window_s=5.0,
        seams=[
            SeamCost(seam="verify_result", calls=rounds, timed_calls=rounds, total_us=verify_us),
            SeamCost(seam="target_logits", calls=3, timed_calls=3, total_us=other_us),
        ],
        threads_cpu_ms={"eagle3-probe-writer": cpu_ms},
    )


def test_cost_per_round_counts_every_seam_and_the_share_the_busiest_window() -> None:
    cost = probe_cost([record(1000, 7000, 1000, 10), record(250, 1750, 250, 15)])
    assert cost is not None
    assert cost.rounds == 1250
    assert cost.round_us == pytest.approx(8.0)
    assert cost.busy_round_us == pytest.approx(5000)
    assert cost.scheduler_share == pytest.approx(0.0016)
    assert cost.threads_share == pytest.approx(0.0025)


def test_windows_without_a_round_do_not_count() -> None:
    assert probe_cost([record(0, 0, 50_000)]) is None
    assert probe_cost([record(0, 0, 50_000), record(10, 100)]) == probe_cost([record(10, 100)])
    assert probe_cost([]) is None
