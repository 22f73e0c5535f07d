"""Verify rounds turned on their side: one entry per request and round, one list per field.

Counting a million rounds record by record costs most of its time in the interpreter; lists of equal
length go through ``zip``, ``Counter`` and ``map`` at the speed of C, and ``numpy.asarray`` takes
them as they are. No column is made before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TypeVar

import msgspec

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound

T = TypeVar("T")

MISSING = -1
"""Entry of ``round`` and ``context_len`` where a record lacks it."""


class RoundColumns:
    """Columns of a batch of records, in the order written.

    Impossible entries (more correct drafts than positions, lists of unequal length) are left out
    here, once for everyone who counts.
    """

    def __init__(self, records: Sequence[VerifyRound]) -> None:
        self.not_counted = sum([len(r.not_counted) for r in records])
        """Rows computed after their request had ended."""
        self.first_wall_s = records[0].wall_s if records else None
        self.last_wall_s = records[-1].wall_s if records else None
        self.records: Sequence[VerifyRound] = records
        """What the columns hold, record by record."""
        self.impossible = 0
        """Entries left out."""
        self._take()
        if not self._all_possible():
            self.records, self.impossible = _possible(records)
            self._take()

    def _take(self) -> None:
        rids = [r.rids for r in self.records]
        self._corrects = [r.correct_drafts for r in self.records]
        self.batch_sizes = list(map(len, rids))
        """One entry per *record*."""
        self._single = self.batch_sizes.count(1) == len(self.batch_sizes)
        self.rid: list[str] = list(chain.from_iterable(rids))
        """Digests."""
        self.correct_drafts: list[int] = list(chain.from_iterable(self._corrects))
        """Without the bonus token."""
        self.steps_in_force = {r.steps for r in self.records}

    def _all_possible(self) -> bool:
        corrects = self.correct_drafts
        return list(map(len, self._corrects)) == self.batch_sizes and (
            not corrects or (min(corrects) >= 0 and max(corrects) <= min(self.steps_in_force))
        )

    def __len__(self) -> int:
        return len(self.rid)

    @cached_property
    def round(self) -> list[int]:
        """0-based within the request; ``MISSING`` where unknown."""
        return self._entries([r.rounds for r in self.records], MISSING)

    @cached_property
    def context_len(self) -> list[int]:
        """Tokens before this round; ``MISSING`` where unknown."""
        return self._entries([r.context_lens for r in self.records], MISSING)

    @cached_property
    def out_of_vocab(self) -> list[bool | None]:
        """``None`` where unknown, as in older traces."""
        return self._entries([r.out_of_vocab for r in self.records], None)

    @cached_property
    def greedy(self) -> list[bool | None]:
        """``None`` in older traces."""
        lists: list[Sequence[bool | None]] = [r.greedy for r in self.records]
        return self._entries(lists, None)

    @cached_property
    def looked_at(self) -> list[bool]:
        """Refusals were looked at, as far as the level in force does; see ``VerifyRound``."""
        lists: list[Sequence[bool]] = [r.looked_at for r in self.records]
        return self._entries(lists, True)

    @cached_property
    def steps(self) -> list[int]:
        return self.of_record([r.steps for r in self.records])

    @cached_property
    def topk(self) -> list[int]:
        return self.of_record([r.topk for r in self.records])

    @cached_property
    def proposed_drafts(self) -> list[int]:
        return self.of_record([r.proposed_drafts for r in self.records])

    @cached_property
    def batch_size(self) -> list[int]:
        """Requests in the same verify round."""
        return self.of_record(self.batch_sizes)

    @cached_property
    def wall_s(self) -> list[float]:
        return self.of_record([r.wall_s for r in self.records])

    @cached_property
    def monotonic_s(self) -> list[float]:
        return self.of_record([r.monotonic_s for r in self.records])

    @cached_property
    def seq(self) -> list[int]:
        """The same for all requests of a record."""
        return self.of_record([r.seq for r in self.records])

    def of_record(self, values: list[T]) -> list[T]:
        """Values of ``records``, repeated for the requests of each."""
        if self._single:
            return values
        return list(chain.from_iterable(map(repeat, values, self.batch_sizes)))

    def _entries(self, lists: Sequence[Sequence[T]], missing: T) -> list[T]:
        if list(map(len, lists)) == self.batch_sizes:
            return list(chain.from_iterable(lists))
        whole: Callable[[Sequence[T], int], Iterable[T]] = lambda values, size: (  # noqa: E731
            values if len(values) == size else repeat(missing, size)
        )
        return list(chain.from_iterable(map(whole, lists, self.batch_sizes)))


def _possible(records: Sequence[VerifyRound]) -> tuple[Sequence[VerifyRound], int]:
    kept, left_out = [], 0
    for record in records:
        fit, odd = _fit(record)
        left_out += odd
        if fit is not None:
            kept.append(fit)
    return kept, left_out


def _fit(record: VerifyRound) -> tuple[VerifyRound | None, int]:
    size = len(record.rids)
    if size != len(record.correct_drafts):
        return None, max(size, len(record.correct_drafts))
    good = [i for i, correct in enumerate(record.correct_drafts) if 0 <= correct <= record.steps]
    if len(good) == size:
        return record, 0
    fields = (
        "rids",
        "rounds",
        "context_lens",
        "correct_drafts",
        "out_of_vocab",
        "greedy",
        "looked_at",
    )
    lists = {
        name: [values[i] for i in good] if len(values := getattr(record, name)) == size else []
        for name in fields
    }
    return msgspec.structs.replace(record, **lists), size - len(good)
