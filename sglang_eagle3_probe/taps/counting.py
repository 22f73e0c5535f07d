"""Which of many equal events are worth a line."""

from __future__ import annotations

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
