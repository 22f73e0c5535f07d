"""Everything that acceptance is judged by, counted in one pass over the traffic of a run."""

from __future__ import annotations

from collections.abc import Iterable

from sglang_eagle3_probe.analysis.anatomy import RefusalCounts
from sglang_eagle3_probe.analysis.phase_costs import Costs
from sglang_eagle3_probe.analysis.slices import SliceCounts, depth_of
from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.traffic import Traffic


class TrafficCounts:
    """Counts of several processes, one after the other. Memory does not grow with the rounds."""

    def __init__(self) -> None:
        self.slices = SliceCounts()
        self.refusals = RefusalCounts()
        self.costs = Costs()
        self.requests_ended = 0
        self.cut_tokens = 0
        """Accepted tokens thrown away because their request had ended before them."""

    def add_process(self, records: Iterable[Traffic], *, started_s: float | None = None) -> None:
        """Count one process's records, oldest first.

        started_s: its monotonic clock at the start; without it, the first record's.
        """
        self.costs.begin_process()
        for record in records:
            if started_s is None:
                started_s = record.monotonic_s
            if isinstance(record, VerifyRound):
                depth = depth_of(record)
                self.slices.add_round(record, depth, record.monotonic_s - started_s)
                self.refusals.add_round(record, depth)
                self.costs.add_round(record)
            elif isinstance(record, Refusals):
                self.refusals.add_refusals(record)
            elif isinstance(record, RequestStart):
                self.slices.add_start(record)
            elif isinstance(record, RequestEnd):
                self.requests_ended += 1
                self.cut_tokens += max(0, record.cut_tokens)
                self.slices.add_end(record)
                self.refusals.add_end(record)
            elif isinstance(record, PhaseTimes):
                self.costs.add_times(record)
