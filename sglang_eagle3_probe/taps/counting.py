"""Which of many equal events are worth a line."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass
class Tally:
    """Totals of one kind of event."""

    calls: int = 0
    rows_total: int = 0


class Milestones:
    """Counts events by key and picks the first, second, fourth, eighth ... of each key.

    A running server makes thousands of equal forwards; the doubling keeps their totals in the
    trace at the cost of a few lines.
    """

    def __init__(self) -> None:
        self._tallies: dict[Hashable, Tally] = {}

    def count(self, key: Hashable, rows: int = 0) -> tuple[Tally, bool]:
        """Count one event.

        Returns:
            The totals of its key, and whether this one shall be recorded.
        """
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
        tally.calls += 1
        tally.rows_total += rows
        return tally, tally.calls & (tally.calls - 1) == 0


class Turns:
    """Picks one of so many events, and no two within some time: what is done then costs the same
    in a server with rounds of three milliseconds as in one with rounds of thirty."""

    def __init__(self, every: int, gap_s: float = 0.0, first: int = 0) -> None:
        """
        Args:
            every: one event of so many; odd numbers reach batches that take turns alike.
            first: 0-based number of the first event that is picked.
        """
        self._every, self._gap_s, self._first = every, gap_s, first
        self._next_s = 0.0

    def takes(self, number: int) -> bool:
        """Whether event ``number`` is picked; ask once for each."""
        if number % self._every != self._first:
            return False
        if self._gap_s:
            now_s = time.monotonic()
            if now_s < self._next_s:
                return False
            self._next_s = now_s + self._gap_s
        return True
