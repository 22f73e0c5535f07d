"""A server run while it runs: totals since its start and over the last seconds.

Memory does not grow with the run: of each kind of record the newest is kept, and of the counts one
copy a second, for as long as the window is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Hashable
from itertools import pairwise
from typing import Generic, TypeVar

from sglang_eagle3_probe.analysis.anatomy import RefusalCounts
from sglang_eagle3_probe.analysis.slices import depth_of
from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import (
    Arguments,
    Fault,
    Footer,
    Header,
    LayerIds,
    Losses,
    Progress,
)
from sglang_eagle3_probe.trace.rounds import Outcome
from sglang_eagle3_probe.trace.runs import may_lead_group

WINDOW_S = 60
BATCHES = (-1, -1)
"""In place of an outcome: verify forwards, whatever their batch size."""

K = TypeVar("K", bound=Hashable)


class Window(Generic[K]):
    """Counts that grow, and what they grew by lately, on the clock of what is counted."""

    def __init__(self, totals: Counter[K], keep_s: int = WINDOW_S) -> None:
        """totals: counted elsewhere, after ``tick``."""
        self.totals = totals
        self._keep_s = keep_s
        self._marks: deque[tuple[int, Counter[K]]] = deque()
        """(second, counts of all that was before that second)."""

    def tick(self, wall_s: float) -> None:
        """Something of this time is about to be counted."""
        second = int(wall_s)
        if self._marks and second <= self._marks[-1][0]:
            return  # the same second, or two threads' records out of order
        self._marks.append((second, self.totals.copy()))
        while self._marks[0][0] < second - self._keep_s:
            self._marks.popleft()

    def since(self, start_s: float) -> Counter[K]:
        """What was counted from a time on; that time must not be older than the window."""
        place = bisect_left(self._marks, int(start_s), key=lambda mark: mark[0])
        if place == len(self._marks):
            return Counter()
        grown = self.totals.copy()
        grown.subtract(self._marks[place][1])
        return +grown  # a cause that became known leaves another one smaller than it was

    def by_second(self, now_s: float) -> list[Counter[K]]:
        """What each of the window's whole seconds brought, oldest first."""
        ends = [self.since(now_s - back) for back in range(self._keep_s, -1, -1)]
        return [a - b for a, b in pairwise(ends)]


class LiveRank:
    """One process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.header: Header | None = None
        self.arguments: Arguments | None = None
        self.layer_ids: LayerIds | None = None
        self.losses = Losses()
        self.faults: dict[str, Fault] = {}
        """Newest by site; sites are few."""
        self.footer: Footer | None = None
        self.last_wall_s = 0.0
        self.first_round_s: float | None = None
        self._outcomes: Counter[Outcome] = Counter()
        self.rounds: Window[Outcome] = Window(self._outcomes)
        self.not_counted = 0

    @property
    def group(self) -> int:
        """Data-parallel rank."""
        return (self.header.ranks.dp_rank if self.header else None) or 0

    @property
    def tp_rank(self) -> int:
        """Tensor-parallel rank; 0 where it is not known."""
        return (self.header.ranks.tp_rank if self.header else None) or 0

    @property
    def may_be_first(self) -> bool:
        """Whether it can stand for its group."""
        return self.header is None or may_lead_group(self.header.ranks)

    def add(self, record: Record) -> None:
        """Take in the process's next record."""
        self.last_wall_s = max(self.last_wall_s, record.wall_s)
        if isinstance(record, VerifyRound):
            self._add_round(record)
        elif isinstance(record, Header):
            self.header = record
        elif isinstance(record, Arguments):
            self.arguments = record
        elif isinstance(record, LayerIds):
            self.layer_ids = record
        elif isinstance(record, Progress):
            self.losses = record.losses
        elif isinstance(record, Footer):
            self.losses, self.footer = record.losses, record
        elif isinstance(record, Fault):
            self.faults[record.site] = record

    def _add_round(self, record: VerifyRound) -> None:
        if self.first_round_s is None:
            self.first_round_s = record.wall_s
        self.rounds.tick(record.wall_s)
        depth = depth_of(record)
        self._outcomes[BATCHES] += 1
        for correct in record.correct_drafts:
            if 0 <= correct <= depth:
                self._outcomes[depth, correct] += 1
        self.not_counted += len(record.not_counted)

    def span_s(self, now_s: float) -> float:
        """Seconds of the window in which rounds could have been."""
        begun_s = now_s if self.first_round_s is None else self.first_round_s
        return min(float(WINDOW_S), max(1.0, now_s - begun_s))

    def rates(self, now_s: float) -> tuple[float, float]:
        """(tokens, verify forwards) per second over the window; tokens count the bonus token."""
        lately, span_s = self.rounds.since(now_s - WINDOW_S), self.span_s(now_s)
        batches = lately.pop(BATCHES, 0)
        return tokens_of(lately) / span_s, batches / span_s

    def tokens_by_second(self, now_s: float) -> list[int]:
        """Over the window, oldest first."""
        return [tokens_of(second) for second in self.rounds.by_second(now_s)]


class LiveRun:
    """All processes of one server run."""

    def __init__(self) -> None:
        self.ranks: dict[str, LiveRank] = {}
        self._refusals: dict[str, RefusalCounts] = {}
        self._causes: dict[str, Window[tuple[int, str]]] = {}

    def add(self, process: str, record: Record) -> None:
        """Take in a record of a process; of each process in the order written."""
        rank = self.ranks.get(process)
        if rank is None:
            rank = self.ranks[process] = LiveRank(process)
        rank.add(record)
        if not rank.may_be_first or isinstance(record, RequestStart | PhaseTimes):
            return
        if isinstance(record, VerifyRound | Refusals | RequestEnd):
            self._add_refusals(process, record)

    def _add_refusals(self, process: str, record: VerifyRound | Refusals | RequestEnd) -> None:
        counts = self._refusals.get(process)
        if counts is None:
            counts = self._refusals[process] = RefusalCounts()
            self._causes[process] = Window(counts.counts)
        self._causes[process].tick(record.wall_s)
        if isinstance(record, VerifyRound):
            counts.add_rounds([record], [depth_of(record)])
        elif isinstance(record, Refusals):
            counts.add_refusals(record)
        else:
            counts.add_end(record)

    def not_looked_at(self) -> int:
        """Rounds for which no record would tell a cause, since the start."""
        counts = [self._refusals.get(rank.name) for rank in self.firsts()]
        return sum(c.not_looked_at.total() for c in counts if c is not None)

    def in_order(self) -> list[LiveRank]:
        """Ranks by data-parallel, then tensor-parallel rank."""

        return sorted(self.ranks.values(), key=lambda r: (r.group, r.tp_rank, r.name))

    def firsts(self) -> list[LiveRank]:
        """One rank of each data-parallel group: its rounds count, others see the same."""
        found: dict[int, LiveRank] = {}
        for rank in self.in_order():
            found.setdefault(rank.group, rank)
        return list(found.values())

    def outcomes(self, since_s: float | None = None) -> Counter[Outcome]:
        """(positions proposed, correct drafts) -> rounds, since the start or since a time."""
        found: Counter[Outcome] = Counter()
        for rank in self.firsts():
            found += rank.rounds.totals if since_s is None else rank.rounds.since(since_s)
        found.pop(BATCHES, None)
        return found

    def causes(self, since_s: float | None = None) -> Counter[str]:
        """Cause -> first refused drafts, all positions together."""
        found: Counter[str] = Counter()
        for rank in self.firsts():
            window = self._causes.get(rank.name)
            if window is None:
                continue
            counts = window.totals if since_s is None else window.since(since_s)
            for (_, cause), n in counts.items():
                found[cause] += n
        return +found


def tokens_of(outcomes: Counter[Outcome]) -> int:
    """Tokens of the rounds, each with its bonus token."""
    return sum((correct + 1) * n for (_, correct), n in outcomes.items() if correct >= 0)
