"""Why drafts were refused: the first refused draft of each round, by position and cause.

A *round* is one request in one verify round. It has a first refused draft when fewer drafts were
right than draft positions were proposed; the position is the number of correct drafts. Later drafts
of the round are lost with it and have no cause of their own.

What a cause means, and which of two wins when both hold:

1. ``ended``: the request ended at an earlier token of this round, so nothing after it counts.
2. ``out_of_vocab``: the draft vocabulary lacks the target's token; no draft could have been right.
3. ``sampling``: greedy verification would have taken the draft.
4. ``unexpanded`` (trees): the draft was not run on the last right draft, so nothing followed it.
5. ``pruned`` (trees): the token was among the draft's topk there, but not in the submitted tree.
6. ``ranked_2`` ... ``ranked_more``: the token's rank in the draft's distribution.
7. ``unknown``: no ``refusals`` record tells (level ``wiring``, or it was lost).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from sglang_eagle3_probe.analysis.intervals import Interval, wilson
from sglang_eagle3_probe.analysis.recent import Recent
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestEnd, VerifyRound

CAUSES = (
    "out_of_vocab",
    "unexpanded",
    "pruned",
    "ranked_2",
    "ranked_3_4",
    "ranked_5_8",
    "ranked_more",
    "sampling",
    "ended",
    "unknown",
)

OPEN_ROUNDS = 65_536
"""Refused rounds kept until their ``refusals`` record or the end of the request is seen. The device
is read about once a second, so this is enough for tens of thousands of requests at once."""
EARLY_REFUSALS = 4_096
"""Refusals kept that came before their round: under the overlap schedule the device is ahead."""

Key = tuple[str, int]
"""(rid digest, round of the request)."""


class Told(NamedTuple):
    """One entry of a ``refusals`` record, by the names of its lists."""

    position: int
    rank: int | None
    target_argmax_matches: bool | None
    unexpanded: bool = False


def entries(record: Refusals) -> Iterator[tuple[Key, Told]]:
    """What a record tells, by request and round."""
    told = zip(
        record.positions,
        record.ranks,
        record.target_argmax_matches,
        record.unexpanded or repeat(False),
        strict=False,
    )
    for rid, number, its in zip(record.rids, record.rounds, told, strict=False):
        yield (rid, number), Told(*its)


def cause_of(
    rank: int | None,
    argmax_matches: bool | None,
    *,
    topk: int,
    greedy: bool | None,
    out_of_vocab: bool | None,
    unexpanded: bool = False,
) -> str:
    """The cause of one refusal, ``ended`` excepted, by the order above."""
    if out_of_vocab:
        return "out_of_vocab"
    if argmax_matches and greedy is not True:
        return "sampling"
    if unexpanded:
        return "unexpanded"
    if rank is None or rank < 1:
        return "unknown"
    if rank <= topk:
        if topk > 1:
            return "pruned"
        # The draft's own first choice can be refused by sampling alone.
        return "unknown" if greedy else "sampling"
    if rank == 2:
        return "ranked_2"
    if rank <= 4:
        return "ranked_3_4"
    return "ranked_5_8" if rank <= 8 else "ranked_more"


class OpenRound(NamedTuple):
    """A refused round whose cause may still change."""

    position: int
    cause: str
    topk: int
    greedy: bool | None
    out_of_vocab: bool | None
    told: bool = False
    """A ``refusals`` record has told of it."""


class RefusalCounts:
    """Joins the records of refused drafts, in bounded memory.

    Rounds and their refusals may come in either order; the end of a request comes after its rounds.
    """

    def __init__(
        self, *, open_rounds: int = OPEN_ROUNDS, early_refusals: int = EARLY_REFUSALS
    ) -> None:
        self.counts: Counter[tuple[int, str]] = Counter()
        """(position, cause) -> rounds."""
        self.not_looked_at: Counter[tuple[int, int]] = Counter()
        """(positions proposed, correct drafts) -> rounds for which no record would tell a cause.
        They are in no other count, so that shares are those of the rounds that were looked at."""
        self.joined = 0
        self.contradictions = 0
        """The draft's first choice was the target's token and was refused although verification was
        greedy: what was submitted is not what the draft computed."""
        self._disagree = 0
        self._open: Recent[Key, OpenRound] = Recent(open_rounds)
        self._early: Recent[Key, Told] = Recent(early_refusals)

    @property
    def unjoined(self) -> int:
        """Entries of ``refusals`` records that met no round, or disagree with it."""
        return self._disagree + self._early.dropped

    def add_rounds(self, records: Iterable[VerifyRound], depths: Iterable[int]) -> Collection[Key]:
        """Count the refused drafts of records; the rounds whose cause may change from here on.

        depths: draft positions that each record proposed.
        """
        opened: dict[Key, OpenRound] = {}
        lost: list[tuple[int, str]] = []
        passed: list[tuple[int, int]] = []
        for record, depth in zip(records, depths, strict=True):
            rids, rounds = record.rids, record.rounds
            known, greedy, topk = record.out_of_vocab, record.greedy, record.topk
            looked_at = record.looked_at
            for i, correct in enumerate(record.correct_drafts):
                if i < len(looked_at) and not looked_at[i]:
                    passed.append((depth, correct))
                    continue
                if not 0 <= correct < depth:
                    continue
                lacks = known[i] if i < len(known) else None
                cause = "out_of_vocab" if lacks else "unknown"
                lost.append((correct, cause))
                if i < len(rids) and i < len(rounds):
                    how = greedy[i] if i < len(greedy) else None
                    opened[rids[i], rounds[i]] = OpenRound(correct, cause, topk, how, lacks)
        self.counts.update(lost)
        self.not_looked_at.update([(d, correct) for d, correct in passed if 0 <= correct <= d])
        self._open.update(opened)
        if self._early:
            for key in opened:
                told = self._early.pop(key)
                if told is not None:
                    self._join(key, told)
        return opened.keys()

    def add_refusals(self, record: Refusals) -> None:
        """Take in why drafts were refused."""
        early = {key: told for key, told in entries(record) if not self._join(key, told)}
        if early:
            self._early.update(early)

    def merge(self, other: RefusalCounts) -> None:
        """Take in another process's counts, which are complete."""
        self.counts.update(other.counts)
        self.not_looked_at.update(other.not_looked_at)
        self.joined += other.joined
        self._disagree += other.unjoined
        self.contradictions += other.contradictions

    def _join(self, key: Key, told: Told) -> bool:
        """False when the round is not known (yet, or any more)."""
        held = self._open.holder(key)
        if held is None:
            return False
        found, rank = held[key], told.rank
        if found.position != told.position:
            self._disagree += 1
            return True
        self.joined += 1
        if rank == 1 and found.topk == 1 and found.greedy:
            self.contradictions += 1
        cause = cause_of(
            rank,
            told.target_argmax_matches,
            topk=found.topk,
            greedy=found.greedy,
            out_of_vocab=found.out_of_vocab,
            unexpanded=told.unexpanded,
        )
        self._move(held, key, cause, told=True)
        return True

    def add_end(self, record: RequestEnd) -> None:
        """A request ended. When tokens of its last round were cut, its refusal came after the end:
        the last token kept stands before the refused position."""
        if record.cut_tokens > 0:
            key = (record.rid, record.verify_rounds - 1)
            held = self._open.holder(key)
            if held is not None:
                self._move(held, key, "ended")

    def open_round(self, key: Key) -> OpenRound | None:
        """What is known of a refused round so far; ``None`` when it is not open (any more)."""
        held = self._open.holder(key)
        return None if held is None else held[key]

    def close(self, key: Key) -> OpenRound | None:
        """The same, and nothing changes it from here on."""
        return self._open.pop(key)

    def _move(
        self, held: dict[Key, OpenRound], key: Key, cause: str, *, told: bool = False
    ) -> None:
        found = held[key]
        if found.cause not in ("ended", cause):
            self.counts[found.position, found.cause] -= 1
            self.counts[found.position, cause] += 1
            held[key] = found._replace(cause=cause, told=told or found.told)
        elif told:
            held[key] = found._replace(told=True)


@dataclass(frozen=True)
class CauseShare:
    """One cause at one position, or at all positions together."""

    cause: str
    count: int
    refused: int
    """First refused drafts at this position, of any cause."""
    reached: int
    """Rounds that proposed this position with all drafts before it right."""

    @property
    def share(self) -> float:
        """Of the refusals."""
        return self.count / self.refused if self.refused else 0.0

    @property
    def interval(self) -> Interval:
        """Of ``share``: Wilson, 95 %."""
        return wilson(self.count, self.refused)

    @property
    def lost(self) -> float:
        """Of the rounds that reached the position: what the cause costs there."""
        return self.count / self.reached if self.reached else 0.0

    @property
    def lost_interval(self) -> Interval:
        """Of ``lost``: Wilson, 95 %."""
        return wilson(self.count, self.reached)


@dataclass(frozen=True)
class Anatomy:
    """First refused drafts by position and cause."""

    rounds: int
    """Those that were looked at."""
    not_looked_at: int
    """Further rounds, about which nothing here says anything."""
    refused: int
    """Rounds with a refused draft."""
    positions: tuple[tuple[CauseShare, ...], ...]
    """Per position, causes that occurred, in the order of ``CAUSES``."""
    total: tuple[CauseShare, ...]
    """All positions together; ``reached`` is all rounds."""
    joined: int
    unjoined: int
    contradictions: int

    @property
    def explained(self) -> int:
        """Refusals whose cause is known."""
        return self.refused - self.of("unknown").count

    def of(self, cause: str) -> CauseShare:
        """One cause, all positions together; of count 0 when it did not occur."""
        empty = CauseShare(cause, 0, self.refused, self.rounds)
        return next((share for share in self.total if share.cause == cause), empty)

    def by_position(self, cause: str) -> list[tuple[int, CauseShare]]:
        """(position, share) of one cause, where it occurred."""
        return [
            (position, share)
            for position, shares in enumerate(self.positions)
            for share in shares
            if share.cause == cause
        ]


def anatomy(counts: RefusalCounts, outcomes: Mapping[tuple[int, int], int]) -> Anatomy:
    """Shares of the causes.

    outcomes: (positions proposed, correct drafts) -> rounds, of the same rounds.
    """
    passed = counts.not_looked_at
    outcomes = {key: n - passed[key] for key, n in outcomes.items()}
    deepest = max((depth for depth, _ in outcomes), default=0)
    positions: list[tuple[CauseShare, ...]] = []
    for k in range(deepest):
        reached = sum(n for (depth, correct), n in outcomes.items() if depth > k <= correct)
        refused = sum(counts.counts[k, cause] for cause in CAUSES)
        positions.append(_shares({c: counts.counts[k, c] for c in CAUSES}, refused, reached))
    whole = {c: sum(counts.counts[k, c] for k in range(deepest)) for c in CAUSES}
    rounds, refused = sum(outcomes.values()), sum(whole.values())
    return Anatomy(
        rounds=rounds,
        not_looked_at=sum(passed.values()),
        refused=refused,
        positions=tuple(positions),
        total=_shares(whole, refused, rounds),
        joined=counts.joined,
        unjoined=counts.unjoined,
        contradictions=counts.contradictions,
    )


def _shares(counted: Mapping[str, int], refused: int, reached: int) -> tuple[CauseShare, ...]:
    return tuple(CauseShare(c, n, refused, reached) for c, n in counted.items() if n)
