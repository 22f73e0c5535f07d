"""What the probe cost the server, from its own clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sglang_eagle3_probe.trace.cost_records import ProbeCost

ROUND_SEAMS = ("verify_result", "verify_result_v1")
"""Called once per verify round: V2, V1."""


@dataclass(frozen=True)
class Cost:
    """Over the windows in which drafts were verified.

    Attributes:
        round_us: our time on the scheduler's thread per verify round, whatever else ran between.
        busy_round_us: wall time per round of the busiest window, which our share is taken of;
            a server that waits for requests has longer ones.
        scheduler_share: round_us / busy_round_us.
        threads_share: CPU time of our own threads over wall time; they share the interpreter.
    """

    rounds: int
    round_us: float
    busy_round_us: float
    threads_share: float

    @property
    def scheduler_share(self) -> float:
        return self.round_us / self.busy_round_us


def probe_cost(records: Iterable[ProbeCost]) -> Cost | None:
    """Pool the records of one process; ``None`` when no round was verified in any window."""
    rounds, total_us, threads_ms, window_s = 0, 0.0, 0.0, 0.0
    busiest_us = float("inf")
    for record in records:
        here = sum(seam.calls for seam in record.seams if seam.seam in ROUND_SEAMS)
        if not here or record.window_s <= 0:
            continue
        rounds += here
        total_us += sum(seam.total_us for seam in record.seams)
        threads_ms += sum(record.threads_cpu_ms.values())
        window_s += record.window_s
        busiest_us = min(busiest_us, record.window_s * 1e6 / here)
    if not rounds:
        return None
    return Cost(rounds, total_us / rounds, busiest_us, threads_ms / 1e3 / window_s)
