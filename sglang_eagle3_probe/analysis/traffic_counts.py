"""Everything that acceptance is judged by, counted in one pass over a process's traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from sglang_eagle3_probe.analysis.anatomy import RefusalCounts
from sglang_eagle3_probe.analysis.phase_costs import Costs
from sglang_eagle3_probe.analysis.slices import SliceCounts, depth_of
from sglang_eagle3_probe.analysis.timeline import TimeCounts
from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Header
from sglang_eagle3_probe.trace.runs import may_lead_group

BLOCK = 1024
"""Records counted together."""


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
        self.time = TimeCounts()
        self.requests_ended = 0
        self.cut_tokens = 0
        """Accepted tokens thrown away because their request had ended before them."""
        self._started_s: float | None = None

    def add(self, block: Passing) -> None:
        """Count records that pass by while a trace is read."""
        self.add_all(block.records, started_s=block.header.monotonic_s if block.header else None)

    def add_all(self, records: Iterable[Record], *, started_s: float | None = None) -> None:
        """Count records, oldest first; those of other types are passed over.

        started_s: the process's monotonic clock when its trace began; the first round's without.
        """
        if self._started_s is None and started_s:
            self._started_s = started_s
        rest = iter(records)
        while block := list(islice(rest, BLOCK)):
            self._add_block(block)

    def _add_block(self, block: Sequence[Record]) -> None:
        # Within a block all starts come first and all ends last: a request's rounds lie between
        # them, so this changes nothing, and rounds can be counted by the hundred.
        rounds = [r for r in block if type(r) is VerifyRound]
        others = (
            [r for r in block if type(r) is not VerifyRound] if len(rounds) < len(block) else []
        )
        for record in others:
            if isinstance(record, RequestStart):
                self.slices.add_start(record)
            elif isinstance(record, PhaseTimes):
                self.costs.add_times(record)
        if rounds:
            if self._started_s is None:
                self._started_s = rounds[0].monotonic_s
            depths = [depth_of(r) for r in rounds]
            self.slices.add_rounds(rounds, depths, self._started_s)
            self.refusals.add_rounds(rounds, depths)
            self.costs.add_rounds(rounds)
            self.time.add_rounds(rounds, depths)
        for record in others:
            if isinstance(record, Refusals):
                self.refusals.add_refusals(record)
        for record in others:
            if isinstance(record, RequestEnd):
                self.requests_ended += 1
                self.cut_tokens += max(0, record.cut_tokens)
                self.slices.add_end(record)
                self.refusals.add_end(record)

    def merge(self, other: TrafficCounts) -> None:
        """Take in another process's counts, which are complete."""
        self.slices.merge(other.slices)
        self.refusals.merge(other.refusals)
        self.costs.merge(other.costs)
        self.time.merge(other.time)
        self.requests_ended += other.requests_ended
        self.cut_tokens += other.cut_tokens


class LeadTraffic(TrafficCounts):
    """Counts of a process whose rounds may be counted; those of other ranks are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_over = False

    def add(self, block: Passing) -> None:
        """Count records that pass by, if this rank can stand for its group."""
        header = block.header
        if isinstance(header, Header) and not may_lead_group(header.ranks):
            self.passed_over = True
        else:
            super().add(block)
