"""Verify rounds folded into counts, so that a log of millions of rounds fits in little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound

Outcome = tuple[int, int]
"""(draft positions proposed, correct drafts) of one request in one verify round."""


@dataclass
class RoundCounts:
    """How often each outcome occurred, in all and per request. Adding is associative."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    by_request: dict[str, Counter[Outcome]] = field(default_factory=dict)
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
        if self.first_wall_s is None:
            self.first_wall_s = record.wall_s
        self.last_wall_s = record.wall_s
        self.not_counted += len(record.not_counted)
        if len(record.rids) != len(record.correct_drafts):
            self.impossible += max(len(record.rids), len(record.correct_drafts))
            return
        for rid, correct in zip(record.rids, record.correct_drafts, strict=True):
            if not 0 <= correct <= record.steps:
                self.impossible += 1
                continue
            outcome = (record.steps, correct)
            self.outcomes[outcome] += 1
            self.topk[record.topk] += 1
            mine = self.by_request.get(rid)
            if mine is None:
                mine = self.by_request[rid] = Counter()
            mine[outcome] += 1

    def merge(self, other: RoundCounts) -> None:
        """Fold in another process's counts."""
        self.outcomes += other.outcomes
        self.topk += other.topk
        self.not_counted += other.not_counted
        self.impossible += other.impossible
        for rid, counts in other.by_request.items():
            self.by_request.setdefault(rid, Counter()).update(counts)
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
    for record in records:
        counts.add(record)
    return counts
