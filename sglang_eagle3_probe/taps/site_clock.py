"""Counts on the host the forwards that the device counts as ticks, so that the two can be joined.

Python runs when a forward is eager or being captured, and not at all when a graph is replayed. So
per unit of work (a verify round, a draft round, an extend) the launches on the device are: as many
as Python made eagerly, plus one replay if Python made none or recorded some into a graph.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

REMEMBERED = 512


class Unit(NamedTuple):
    """One forward of a site on behalf of requests.

    rows: rows of the launch that belong to them; ``None`` when the host cannot know. rids: their
    request ids, not yet digests: most units are never looked at.
    """

    tick: int
    rows: int | None
    rids: tuple[str, ...]


class SiteClock:
    """The host's count for one site."""

    def __init__(self) -> None:
        self.next_tick = 0
        self.eager_launches = 0
        self.replays = 0
        self.recorded = False
        """The tap is part of at least one captured graph."""
        self._units: deque[Unit] = deque(maxlen=REMEMBERED)
        self._in_unit = False
        self._eager = 0
        self._captured = 0

    def launched(self, *, capturing: bool) -> None:
        """The tap was launched from Python, eagerly or into a graph being captured."""
        if capturing:
            self.recorded = True
            self._captured += 1
            return
        self.eager_launches += 1
        self.next_tick += 1
        self._eager += 1

    def begin(self) -> None:
        """A unit of work of this site starts."""
        self._in_unit = True
        self._eager = self._captured = 0

    def end(self, rows: int | None, rids: tuple[str, ...]) -> None:
        """The unit is enqueued; its forward is the newest tick."""
        if not self._in_unit:
            return
        self._in_unit = False
        if self._eager == 0 or self._captured:
            if not self.recorded:
                # Neither Python nor a graph with our tap: nothing ticked on the device.
                return
            self.next_tick += 1
            self.replays += 1
        self._units.append(Unit(self.next_tick - 1, rows, rids))

    def units(self) -> list[Unit]:
        """The newest units, oldest first."""
        return list(self._units)

    @property
    def newest(self) -> Unit | None:
        """The newest unit."""
        return self._units[-1] if self._units else None
