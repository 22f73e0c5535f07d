"""Verify rounds folded into counts, so that a log of millions of rounds fits in little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.columns import RoundColumns

Outcome = tuple[int, int]
"""(draft positions proposed, correct drafts) of one request in one verify round."""

_ONE_OF_EACH: dict[Outcome, Outcome] = {}
"""Millions of requests share a handful of outcomes, in memory and in what workers send back."""


@dataclass
class RoundCounts:
    """How often each outcome occurred, in all and per request. Adding is associative."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    by_request: dict[str, dict[Outcome, int]] = field(default_factory=dict)
    """By rid digest (12 hex digits)."""
    topk: Counter[int] = field(default_factory=Counter)
    """Request rounds per ``topk`` in force."""
    not_counted: int = 0
    """Rows computed after their request had ended."""
    impossible: int = 0
    """Entries left out: more correct drafts than positions, or lists of unequal length."""
    first_wall_s: float | None = None
    last_wall_s: float | None = None

    def add(self, record: VerifyRound) -> None:
        """Fold in one record."""
        self.add_columns(RoundColumns([record]))

    def add_columns(self, columns: RoundColumns) -> None:
        """Fold in a batch, which must be later than what was folded in before."""
        if columns.first_wall_s is not None:
            if self.first_wall_s is None:
                self.first_wall_s = columns.first_wall_s
            self.last_wall_s = columns.last_wall_s
        self.not_counted += columns.not_counted
        self.impossible += columns.impossible
        topks = {r.topk for r in columns.records}
        if len(topks) == 1:
            self.topk[topks.pop()] += len(columns)
        else:
            self.topk.update(columns.topk)
        if len(columns.steps_in_force) == 1:
            (steps,) = columns.steps_in_force
            pairs = Counter(zip(columns.rid, columns.correct_drafts, strict=True))
            for (rid, correct), rounds in pairs.items():
                self._add(rid, (steps, correct), rounds)
        else:
            triples = Counter(zip(columns.rid, columns.steps, columns.correct_drafts, strict=True))
            for (rid, steps, correct), rounds in triples.items():
                self._add(rid, (steps, correct), rounds)

    def _add(self, rid: str, outcome: Outcome, rounds: int) -> None:
        outcome = _ONE_OF_EACH.setdefault(outcome, outcome)
        self.outcomes[outcome] += rounds
        mine = self.by_request.get(rid)
        if mine is None:
            mine = self.by_request[rid] = {}
        mine[outcome] = mine.get(outcome, 0) + rounds

    def merge(self, other: RoundCounts) -> None:
        """Fold in another process's counts."""
        self.outcomes += other.outcomes
        self.topk += other.topk
        self.not_counted += other.not_counted
        self.impossible += other.impossible
        for rid, counts in other.by_request.items():
            mine = self.by_request.get(rid)
            if mine is None:
                self.by_request[rid] = dict(counts)
                continue
            for outcome, rounds in counts.items():
                mine[outcome] = mine.get(outcome, 0) + rounds
        walls = [w for w in (self.first_wall_s, other.first_wall_s) if w is not None]
        self.first_wall_s = min(walls) if walls else None
        walls = [w for w in (self.last_wall_s, other.last_wall_s) if w is not None]
        self.last_wall_s = max(walls) if walls else None

    @property
    def total(self) -> int:
        """Request rounds: one request in one verify round counts once."""
        return sum(self.outcomes.values())


def count(records: Iterable[VerifyRound]) -> RoundCounts:
    """Fold an iterable of records."""
    counts = RoundCounts()
    counts.add_columns(RoundColumns(list(records)))
    return counts
