"""Acceptance over the time a server runs, in bins that widen as the run grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter

from sglang_eagle3_probe.analysis.intervals import Interval, mean_interval
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound

MOST_BINS = 120
"""Bins kept; one more makes all of them twice as wide."""
LATEST_S = 1e11
"""Later clocks (past the year 5000) are damage."""


@dataclass(frozen=True)
class Moment:
    """One bin: half open, [start_s, start_s + width_s), in seconds since the epoch."""

    start_s: int
    width_s: int
    rounds: int
    accept_length: float
    interval: Interval | None
    """95 %, rounds taken as independent."""


class TimeCounts:
    """Tokens per round (bonus included) by wall-clock time, in memory that does not grow.

    Bins begin one second wide and at multiples of their width, so counts of several processes can
    be added.
    """

    def __init__(self) -> None:
        self._width_s = 1
        self._bins: dict[int, Counter[int]] = {}
        self._deepest = 0

    def add_rounds(self, records: Sequence[VerifyRound], depths: Sequence[int]) -> None:
        """Count records. depths: draft positions that each proposed."""
        if len(set(depths)) == 1:
            self._add(records, depths[0])
        else:
            for depth, pairs in groupby(zip(depths, records, strict=True), key=itemgetter(0)):
                self._add([record for _, record in pairs], depth)
        while len(self._bins) > MOST_BINS:
            self._widen()

    def _add(self, records: Sequence[VerifyRound], depth: int) -> None:
        """Count records that all proposed so many positions."""
        width = self._width_s
        self._deepest = max(self._deepest, depth)
        places = [int(r.wall_s) // width if 0 <= r.wall_s < LATEST_S else -1 for r in records]
        first = 0
        for place, same in groupby(places):
            last = first + sum(1 for _ in same)
            # The same rows that the accept length is made of, and no others.
            found = Counter(
                chain.from_iterable(
                    r.correct_drafts
                    for r in records[first:last]
                    if len(r.rids) == len(r.correct_drafts)
                )
            )
            first = last
            if place < 0:
                continue
            for impossible in [right for right in found if not 0 <= right <= depth]:
                del found[impossible]
            if found:
                self._bins.setdefault(place, Counter()).update(found)

    def merge(self, other: TimeCounts) -> None:
        """Take in another process's counts."""
        while self._width_s < other._width_s:
            self._widen()
        ratio = self._width_s // other._width_s
        self._deepest = max(self._deepest, other._deepest)
        for place, lengths in other._bins.items():
            self._bins.setdefault(place // ratio, Counter()).update(lengths)
        while len(self._bins) > MOST_BINS:
            self._widen()

    def moments(self) -> tuple[Moment, ...]:
        """Bins with rounds, oldest first."""
        result = []
        for place, correct in sorted(self._bins.items()):
            rounds = sum(correct.values())
            if not rounds:
                continue
            lengths = {right + 1: n for right, n in correct.items()}
            mean, interval = mean_interval(lengths, 1, self._deepest + 1)
            start_s = place * self._width_s
            result.append(Moment(start_s, self._width_s, rounds, mean, interval))
        return tuple(result)

    def _widen(self) -> None:
        self._width_s *= 2
        wider: dict[int, Counter[int]] = {}
        for place, lengths in self._bins.items():
            wider.setdefault(place // 2, Counter()).update(lengths)
        self._bins = wider
