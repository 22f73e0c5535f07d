"""Causes of refused drafts as counts that only grow: a cause is counted when it is settled.

The cause of a refusal becomes known after the round (the device is read about once a second) and
can still change when the request ends. A Prometheus counter cannot take anything back, so a refusal
waits here until nothing can change it, or until it has waited long enough.
"""

from __future__ import annotations

from collections import Counter

from ..analysis.anatomy import Key, RefusalCounts
from ..analysis.slices import depth_of
from ..trace.acceptance_records import Refusals, RequestEnd, VerifyRound

HOLD_S = 2.0
"""The end of a request is written with its last round, on the same thread."""
HOLD_FOR_DEVICE_S = 30.0
"""Level ``stats``: the device is read every 64 rounds or so."""
WAITING = 65_536
"""Refusals held at most; beyond, the oldest are counted as they are."""
NOT_LOOKED_AT = "not_looked_at"
"""In place of a cause: the refusal counts at its position, and in no share of the causes."""


class SettledCauses:
    """First refused drafts by (position, cause), as ``analysis.anatomy`` joins and names them."""

    def __init__(self, *, from_device: bool, waiting: int = WAITING) -> None:
        """from_device: ``refusals`` records will come (level ``stats``)."""
        self._hold_s = HOLD_FOR_DEVICE_S if from_device else HOLD_S
        self._limit = waiting
        # What waits here is closed by us; what it forgets on its own must not be among it.
        self._counts = RefusalCounts(open_rounds=2 * waiting)
        self._since_s: dict[Key, float] = {}
        """When the round of each held refusal came."""
        self._settled: Counter[tuple[int, str]] = Counter()

    def add_round(self, record: VerifyRound, now_s: float) -> None:
        """Hold the refused drafts of a round. now_s: any monotonic clock, in seconds."""
        for key in self._counts.add_rounds([record], [depth_of(record)]):
            self._since_s[key] = now_s
        while len(self._since_s) > self._limit:
            self._close(next(iter(self._since_s)))

    def add_refusals(self, record: Refusals) -> None:
        """Learn ranks, of rounds that came or will come."""
        self._counts.add_refusals(record)

    def add_end(self, record: RequestEnd) -> None:
        """A request ended: when tokens of its last round were cut, its refusal came after that."""
        self._counts.add_end(record)

    def settle(self, now_s: float) -> Counter[tuple[int, str]]:
        """(position, cause) -> refusals that settled since the last call."""
        waited_s = {key: now_s - since_s for key, since_s in self._since_s.items()}
        for key, waited in waited_s.items():
            if waited >= self._hold_s or self._is_settled(key, waited):
                self._close(key)
        passed, self._counts.not_looked_at = self._counts.not_looked_at, Counter()
        for (depth, correct), count in passed.items():
            if correct < depth:
                self._settled[correct, NOT_LOOKED_AT] += count
        settled, self._settled = self._settled, Counter()
        return settled

    def _is_settled(self, key: Key, waited_s: float) -> bool:
        found = self._counts.open_round(key)
        if found is None or found.cause == "ended":
            return True
        return found.told and waited_s >= HOLD_S

    def _close(self, key: Key) -> None:
        del self._since_s[key]
        found = self._counts.close(key)
        if found is not None:
            self._settled[found.position, found.cause] += 1
