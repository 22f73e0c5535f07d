"""Everything that acceptance is judged by, counted in one pass over a process's traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

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
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Header


class Passing(Protocol):
    """Records of one process that follow each other, and its header if it was seen."""

    @property
    def header(self) -> Record | None: ...
    @property
    def records(self) -> Sequence[Record]: ...


class TrafficCounts:
    """Counts of one process; of several after ``merge``. Memory does not grow with the rounds."""

    def __init__(self) -> None:
        self.slices = SliceCounts()
        self.refusals = RefusalCounts()
        self.costs = Costs()
        self.requests_ended = 0
        self.cut_tokens = 0
        """Accepted tokens thrown away because their request had ended before them."""
        self._started_s: float | None = None

    def add(self, block: Passing) -> None:
        """Count records that pass by while a trace is read."""
        self.add_all(block.records, started_s=block.header.monotonic_s if block.header else None)

    def add_all(self, records: Iterable[Record], *, started_s: float | None = None) -> None:
        """Count records, oldest first; those of other types are passed over.

        started_s: the process's monotonic clock when its trace began; the first record's without.
        """
        if self._started_s is None and started_s:
            self._started_s = started_s
        for record in records:
            if type(record) is VerifyRound:  # the most by far, and read by the million
                if self._started_s is None:
                    self._started_s = record.monotonic_s
                depth = depth_of(record)
                self.slices.add_round(record, depth, record.monotonic_s - self._started_s)
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

    def merge(self, other: TrafficCounts) -> None:
        """Take in another process's counts, which are complete."""
        self.slices.merge(other.slices)
        self.refusals.merge(other.refusals)
        self.costs.merge(other.costs)
        self.requests_ended += other.requests_ended
        self.cut_tokens += other.cut_tokens


class LeadTraffic(TrafficCounts):
    """Counts of a process whose rounds will be counted; tensor-parallel ranks all see the same, so
    those beside the first are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_over = False

    def add(self, block: Passing) -> None:
        """Count records that pass by, if this is the first tensor-parallel rank."""
        header = block.header
        if isinstance(header, Header) and header.ranks.tp_rank:
            self.passed_over = True
        else:
            super().add(block)
