"""From the ring's words to ``refusals`` records, on a thread that never touches CUDA."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..device.drain import Snapshot
from ..device.layout import row_step
from ..device.refusals import LAYOUT, NOTHING_REFUSED, SEEN, UNEXPANDED, UNKNOWN
from ..host.session import Session
from ..trace.acceptance_records import Refusals
from .reading_thread import ReadingThread

PAUSE_S = 0.001
"""Slept now and then while reading, so that the scheduler's thread is not kept waiting."""
PAUSE_EVERY = 16


class Join(NamedTuple):
    """A device tick and the requests of its round, in batch order.

    rids: digests; empty for rows that SGLang does not count. rounds: 0-based within the request.
    """

    tick: int
    rids: list[str]
    rounds: list[int]


def refusals_of(words: NDArray[np.int32], join: Join) -> Refusals | None:
    """The record of one tick; ``None`` when no counted request had a draft refused.

    Args:
        words: int32 [max_rows, 8] of the tick.
    """
    if int(words[0, 1]) != len(join.rids):
        return None
    step = row_step(len(join.rids), LAYOUT.max_rows)
    record = Refusals(
        rids=[], rounds=[], positions=[], ranks=[], target_argmax_matches=[], unexpanded=[]
    )
    for place, row in enumerate(range(0, len(join.rids), step)):
        position, rank, matches, flag = (int(word) for word in words[place, 2:6])
        if position == NOTHING_REFUSED or not join.rids[row]:
            continue
        record.rids.append(join.rids[row])
        record.rounds.append(join.rounds[row])
        record.positions.append(position)
        record.ranks.append(rank if flag == SEEN else None)
        record.target_argmax_matches.append(None if matches == UNKNOWN else bool(matches))
        record.unexpanded.append(flag == UNEXPANDED)
    return record if record.rids else None


class RefusalReader:
    """Emits one record per round, as snapshots arrive."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._since = 0
        self._joins: dict[int, Join] = {}
        self._thread = ReadingThread(
            session.guard.site("refusals_reader"),
            "eagle3-probe-refusals",
            lambda: session.miss("refusal_snapshot"),
        )

    def put(self, snapshot: Snapshot, joins: list[Join]) -> bool:
        """Hand a snapshot over; a full queue drops it and counts. False when it did."""
        return self._thread.put(lambda: self._emit(snapshot, joins))

    def _emit(self, snapshot: Snapshot, joins: list[Join]) -> None:
        for count, record in enumerate(self.read(snapshot, joins)):
            self._session.emit(record)
            if count % PAUSE_EVERY == 0:
                time.sleep(PAUSE_S)

    def read(self, snapshot: Snapshot, joins: list[Join]) -> Iterable[Refusals]:
        """Records of the rounds that the snapshot has and the host has resolved.

        A round is resolved after it was launched, so the newest ticks are left for the next time.
        """
        self._joins.update((join.tick, join) for join in joins)
        newest = max(self._joins, default=-1)
        first, words, lost = snapshot.records(0, self._since)
        if lost:
            self._session.miss("refusal_round", lost)
            self._since = first
        for index in range(len(words)):
            tick = first + index
            if tick > newest:
                break
            join = self._joins.pop(tick, None)
            self._since = tick + 1
            record = None if join is None else refusals_of(words[index, :, 0], join)
            if record is not None:
                yield record
        for tick in [tick for tick in self._joins if tick < self._since]:
            del self._joins[tick]
