"""How long things take: phase times pooled, and the time from one verify round to the next.

Two sources that measure different things. ``phase_times`` records hold the work itself (on the
device, or by wall clock where work is synchronous). The *spacing* of verify rounds holds all of it
together with the host's share, and is there in every trace. Memory is bounded: spacings are kept as
a histogram with bins of 2 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sglang_eagle3_probe.trace.acceptance_records import PhaseTime, PhaseTimes, VerifyRound

BINS_PER_E = 50
"""Bins per factor e: 2 % wide, so a median is right within 1 %."""

Setting = tuple[int, int, int]
"""(steps, topk, draft tokens)."""


@dataclass
class PhaseCost:
    """One phase at one batch size and setting, pooled over records."""

    phase: str
    batch_size: int
    setting: Setting
    count: int = 0
    total_ms: float = 0.0
    medians_ms: float = 0.0
    """Medians of the records, weighted by their counts: the sum."""
    least_ms: float = math.inf
    greatest_ms: float = 0.0

    def add(self, seen: PhaseTime) -> None:
        """Pool one record's times. Counts below 1 and times that are no times are passed over."""
        if seen.count < 1 or not 0 <= seen.mean_ms < math.inf:
            return
        self.count += seen.count
        self.total_ms += seen.mean_ms * seen.count
        self.medians_ms += seen.median_ms * seen.count
        self.least_ms = min(self.least_ms, seen.least_ms)
        self.greatest_ms = max(self.greatest_ms, seen.greatest_ms)

    def merge(self, other: PhaseCost) -> None:
        """Pool another process's times of the same phase, batch size and setting."""
        self.count += other.count
        self.total_ms += other.total_ms
        self.medians_ms += other.medians_ms
        self.least_ms = min(self.least_ms, other.least_ms)
        self.greatest_ms = max(self.greatest_ms, other.greatest_ms)

    @property
    def typical_ms(self) -> float:
        """Mean of the records' medians: a rare pause does not move it. ``nan`` without counts."""
        return self.medians_ms / self.count if self.count else math.nan

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.count if self.count else math.nan


@dataclass
class Spacing:
    """Milliseconds from one verify round to the next at one batch size."""

    bins: Counter[int] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return sum(self.bins.values())

    @property
    def median_ms(self) -> float:
        """``nan`` when nothing was counted."""
        middle, seen = (self.count + 1) / 2, 0
        for place in sorted(self.bins):
            seen += self.bins[place]
            if seen >= middle:
                return math.exp((place + 0.5) / BINS_PER_E)
        return math.nan


class Costs:
    """Times of one process; of several after ``merge``."""

    def __init__(self) -> None:
        self.phases: dict[tuple[str, int, Setting], PhaseCost] = {}
        self.spacing: dict[int, Spacing] = {}
        self.clocks: Counter[str] = Counter()
        """Records per clock, ``device`` or ``host``."""
        self.overlapped = False
        self.not_timed = 0
        self._last: VerifyRound | None = None

    def add_times(self, record: PhaseTimes) -> None:
        """Pool a record of phase times."""
        self.clocks[record.clock] += 1
        self.overlapped |= record.overlapped
        self.not_timed += record.not_timed
        setting = (record.steps, record.topk, record.draft_tokens)
        for seen in record.phases:
            key = (seen.phase, seen.batch_size, setting)
            cost = self.phases.get(key)
            if cost is None:
                cost = self.phases[key] = PhaseCost(seen.phase, seen.batch_size, setting)
            cost.add(seen)

    def add_rounds(self, records: Iterable[VerifyRound]) -> None:
        """Measure the gaps between rounds in which nothing but a round lies.

        The same requests must have advanced by one round each; a prefill in between brings a new
        request, and an idle server starts with one.
        """
        gaps: dict[int, list[int]] = {}
        last, log = self._last, math.log
        for record in records:
            rids = record.rids
            if (
                last is not None
                and rids
                and last.rids == rids
                and last.not_counted == record.not_counted
                and (gap_s := record.monotonic_s - last.monotonic_s) > 0
                and [number + 1 for number in last.rounds] == record.rounds
            ):
                place = math.floor(log(1000 * gap_s) * BINS_PER_E)
                gaps.setdefault(len(rids) + len(record.not_counted), []).append(place)
            last = record
        self._last = last
        for batch, places in gaps.items():
            self.spacing.setdefault(batch, Spacing()).bins.update(places)

    def merge(self, other: Costs) -> None:
        """Take in another process's times."""
        for key, cost in other.phases.items():
            mine = self.phases.get(key)
            if mine is None:
                mine = self.phases[key] = PhaseCost(cost.phase, cost.batch_size, cost.setting)
            mine.merge(cost)
        for size, spacing in other.spacing.items():
            ours = self.spacing.setdefault(size, Spacing())
            ours.bins.update(spacing.bins)
        self.clocks.update(other.clocks)
        self.overlapped |= other.overlapped
        self.not_timed += other.not_timed

    def of(self, phase: str, batch_size: int, setting: Setting | None = None) -> PhaseCost | None:
        """Times of a phase; without a setting those of the one with most counts."""
        found = [
            cost
            for (name, size, its), cost in self.phases.items()
            if name == phase and size == batch_size and setting in (None, its) and cost.count
        ]
        return max(found, key=lambda cost: cost.count, default=None)

    def batch_sizes(self) -> list[int]:
        """Batch sizes with any time, ascending."""
        timed = {size for (_, size, _), cost in self.phases.items() if cost.count}
        return sorted(timed | set(self.spacing))


def plain_steps(costs: Costs) -> Mapping[int, float]:
    """Batch size -> milliseconds of a plain decode step, where it was measured."""
    found = {size: costs.of("decode", size) for size in costs.batch_sizes()}
    return {size: cost.typical_ms for size, cost in found.items() if cost is not None}
