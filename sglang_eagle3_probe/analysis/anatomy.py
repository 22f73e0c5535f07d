"""Why drafts were refused: the first refused draft of each round, by position and cause.

A *round* is one request in one verify round. It has a first refused draft when fewer drafts were
right than draft positions were proposed; the position is the number of correct drafts. Later drafts
of the round are lost with it and have no cause of their own.

What a cause means, and which of two wins when both hold:

1. ``ended``: the request ended at an earlier token of this round, so nothing after it counts.
2. ``out_of_vocab``: the draft vocabulary lacks the target's token; no draft could have been right.
3. ``sampling``: greedy verification would have taken the draft.
4. ``pruned`` (trees): the token was among the draft's topk there, but not in the submitted tree.
5. ``ranked_2`` ... ``ranked_more``: the token's rank in the draft's distribution.
6. ``unknown``: no ``refusals`` record tells (level ``wiring``, or it was lost).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sglang_eagle3_probe.analysis.intervals import Interval, wilson
from sglang_eagle3_probe.analysis.recent import Recent
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestEnd, VerifyRound

CAUSES = (
    "out_of_vocab",
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


def cause_of(
    rank: int | None,
    argmax_matches: bool | None,
    *,
    topk: int,
    greedy: bool | None,
    out_of_vocab: bool | None,
) -> str:
    """The cause of one refusal, ``ended`` excepted, by the order above."""
    if out_of_vocab:
        return "out_of_vocab"
    if argmax_matches and greedy is not True:
        return "sampling"
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


class _Open(NamedTuple):
    """A refused round whose cause may still change."""

    position: int
    cause: str
    topk: int
    greedy: bool | None
    out_of_vocab: bool | None


_Told = tuple[int, int | None, bool | None]
"""(position, rank, target_argmax_matches) of one refusal."""


class RefusalCounts:
    """Joins the records of refused drafts, in bounded memory.

    Rounds and their refusals may come in either order; the end of a request comes after its rounds.
    """

    def __init__(
        self, *, open_rounds: int = OPEN_ROUNDS, early_refusals: int = EARLY_REFUSALS
    ) -> None:
        self.counts: Counter[tuple[int, str]] = Counter()
        """(position, cause) -> rounds."""
        self.joined = 0
        self.contradictions = 0
        """The draft's first choice was the target's token and was refused although verification was
        greedy: what was submitted is not what the draft computed."""
        self._disagree = 0
        self._open: Recent[Key, _Open] = Recent(open_rounds)
        self._early: Recent[Key, _Told] = Recent(early_refusals)

    @property
    def unjoined(self) -> int:
        """Entries of ``refusals`` records that met no round, or disagree with it."""
        return self._disagree + self._early.dropped

    def add_rounds(self, records: Iterable[VerifyRound], depths: Iterable[int]) -> None:
        """Count the refused drafts of records. depths: draft positions that each proposed."""
        opened: dict[Key, _Open] = {}
        lost: list[tuple[int, str]] = []
        for record, depth in zip(records, depths, strict=True):
            rids, rounds = record.rids, record.rounds
            known, greedy, topk = record.out_of_vocab, record.greedy, record.topk
            for i, correct in enumerate(record.correct_drafts):
                if not 0 <= correct < depth:
                    continue
                lacks = known[i] if i < len(known) else None
                cause = "out_of_vocab" if lacks else "unknown"
                lost.append((correct, cause))
                if i < len(rids) and i < len(rounds):
                    how = greedy[i] if i < len(greedy) else None
                    opened[rids[i], rounds[i]] = _Open(correct, cause, topk, how, lacks)
        self.counts.update(lost)
        self._open.update(opened)
        if self._early:
            for key in opened:
                told = self._early.pop(key)
                if told is not None:
                    self._join(key, told)

    def add_refusals(self, record: Refusals) -> None:
        """Take in why drafts were refused."""
        early: dict[Key, _Told] = {}
        for rid, number, position, rank, matches in zip(
            record.rids,
            record.rounds,
            record.positions,
            record.ranks,
            record.target_argmax_matches,
            strict=False,
        ):
            key, told = (rid, number), (position, rank, matches)
            if not self._join(key, told):
                early[key] = told
        if early:
            self._early.update(early)

    def merge(self, other: RefusalCounts) -> None:
        """Take in another process's counts, which are complete."""
        self.counts.update(other.counts)
        self.joined += other.joined
        self._disagree += other.unjoined
        self.contradictions += other.contradictions

    def _join(self, key: Key, told: _Told) -> bool:
        """False when the round is not known (yet, or any more)."""
        held = self._open.holder(key)
        if held is None:
            return False
        found, (position, rank, matches) = held[key], told
        if found.position != position:
            self._disagree += 1
            return True
        self.joined += 1
        if rank == 1 and found.topk == 1 and found.greedy:
            self.contradictions += 1
        cause = cause_of(
            rank, matches, topk=found.topk, greedy=found.greedy, out_of_vocab=found.out_of_vocab
        )
        self._move(held, key, cause)
        return True

    def add_end(self, record: RequestEnd) -> None:
        """A request ended. When tokens of its last round were cut, its refusal came after the end:
        the last token kept stands before the refused position."""
        if record.cut_tokens > 0:
            key = (record.rid, record.verify_rounds - 1)
            held = self._open.holder(key)
            if held is not None:
                self._move(held, key, "ended")

    def _move(self, held: dict[Key, _Open], key: Key, cause: str) -> None:
        found = held[key]
        if found.cause not in ("ended", cause):
            self.counts[found.position, found.cause] -= 1
            self.counts[found.position, cause] += 1
            held[key] = found._replace(cause=cause)


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
        refused=refused,
        positions=tuple(positions),
        total=_shares(whole, refused, rounds),
        joined=counts.joined,
        unjoined=counts.unjoined,
        contradictions=counts.contradictions,
    )


def _shares(counted: Mapping[str, int], refused: int, reached: int) -> tuple[CauseShare, ...]:
    return tuple(CauseShare(c, n, refused, reached) for c, n in counted.items() if n)
