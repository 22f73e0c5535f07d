"""Causes of refused drafts as counts that only grow: a cause is counted when it is settled.

The cause of a refusal becomes known after the round (the device is read about once a second) and
can still change when the request ends. A Prometheus counter cannot take anything back, so a refusal
waits here until nothing can change it, or until it has waited long enough.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..analysis.anatomy import cause_of
from ..analysis.slices import depth_of
from ..trace.acceptance_records import Refusals, RequestEnd, VerifyRound

HOLD_S = 2.0
"""The end of a request is written with its last round, on the same thread."""
HOLD_FOR_DEVICE_S = 30.0
"""Level ``stats``: the device is read every 64 rounds at the latest."""
WAITING = 65_536
"""Refusals held at most; beyond, the oldest are counted as they are."""

Key = tuple[str, int]
_Told = tuple[int, int | None, bool | None]


class _Held(NamedTuple):
    due_s: float
    position: int
    cause: str
    topk: int
    greedy: bool | None
    out_of_vocab: bool | None


class SettledCauses:
    """First refused drafts by (position, cause), as ``analysis.anatomy`` defines causes."""

    def __init__(self, *, from_device: bool, waiting: int = WAITING) -> None:
        """from_device: ``refusals`` records will come (level ``stats``)."""
        self._hold_s = HOLD_FOR_DEVICE_S if from_device else HOLD_S
        self._limit = waiting
        self._held: dict[Key, _Held] = {}
        self._early: dict[Key, _Told] = {}
        self._settled: Counter[tuple[int, str]] = Counter()

    def add_round(self, record: VerifyRound, now_s: float) -> None:
        """Hold the refused drafts of a round. now_s: any monotonic clock, in seconds."""
        known, greedy, depth = record.out_of_vocab, record.greedy, depth_of(record)
        due_s = now_s + self._hold_s
        for i, (rid, number, correct) in enumerate(
            zip(record.rids, record.rounds, record.correct_drafts, strict=False)
        ):
            if not 0 <= correct < depth:
                continue
            lacks = known[i] if i < len(known) else None
            cause = "out_of_vocab" if lacks else "unknown"
            how = greedy[i] if i < len(greedy) else None
            self._held[rid, number] = _Held(due_s, correct, cause, record.topk, how, lacks)
        while len(self._held) > self._limit:
            self._count(self._held.pop(next(iter(self._held))))

    def add_refusals(self, record: Refusals, now_s: float) -> None:
        """Learn ranks. What is told before its round is kept until the next ``settle``."""
        keys = zip(record.rids, record.rounds, strict=False)
        told = zip(record.positions, record.ranks, record.target_argmax_matches, strict=False)
        for key, its in zip(keys, told, strict=False):
            if not self._learn(key, its, now_s):
                self._early[key] = its

    def _learn(self, key: Key, told: _Told, now_s: float) -> bool:
        found = self._held.get(key)
        if found is None:
            return False
        position, rank, matches = told
        if position == found.position and found.cause != "ended":
            cause = cause_of(
                rank, matches, topk=found.topk, greedy=found.greedy, out_of_vocab=found.out_of_vocab
            )
            due_s = min(found.due_s, now_s + HOLD_S)
            self._held[key] = found._replace(cause=cause, due_s=due_s)
        return True

    def add_end(self, record: RequestEnd) -> None:
        """A request ended: when tokens of its last round were cut, its refusal came after that."""
        if record.cut_tokens <= 0:
            return
        key = (record.rid, record.verify_rounds - 1)
        found = self._held.get(key)
        if found is not None:
            self._held[key] = found._replace(cause="ended", due_s=0.0)

    def settle(self, now_s: float) -> Counter[tuple[int, str]]:
        """(position, cause) -> refusals that settled since the last call."""
        early, self._early = self._early, {}
        for key, told in early.items():
            self._learn(key, told, now_s)
        for key in [key for key, held in self._held.items() if held.due_s <= now_s]:
            self._count(self._held.pop(key))
        settled, self._settled = self._settled, Counter()
        return settled

    def _count(self, held: _Held) -> None:
        self._settled[held.position, held.cause] += 1
