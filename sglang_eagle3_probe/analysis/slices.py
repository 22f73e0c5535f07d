"""Acceptance by what was going on: context length, cache hits, round, batch, uptime, and so on.

All dimensions are counted at once: each round adds one to one cell of their product. A cell is a
number whose bits are the buckets, so a row costs one addition and memory is bounded by the cells
that occur (thousands, however long the log).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sglang_eagle3_probe.analysis.acceptance import Acceptance, from_outcomes
from sglang_eagle3_probe.analysis.recent import Recent
from sglang_eagle3_probe.trace.acceptance_records import RequestEnd, RequestStart, VerifyRound
from sglang_eagle3_probe.trace.rounds import Outcome

REQUESTS = 65_536
"""Requests whose start is remembered; the oldest are forgotten when their end was never written."""
DEEPEST = 255
"""Draft positions a cell can hold."""


NO_CONTEXT, LATE_ROUND, NO_ROUND = 31, 7, 15
"""Buckets of what the record lacks, and of rounds from 64 on."""


@dataclass(frozen=True)
class Dimension:
    """One way to slice. ``label``: bucket -> words; empty when the bucket says "not recorded"."""

    name: str
    title: str
    shift: int
    bits: int
    label: Callable[[int], str]

    def bucket(self, cell: int) -> int:
        return (cell >> self.shift) & ((1 << self.bits) - 1)


def _context(bucket: int) -> str:
    if bucket == NO_CONTEXT:
        return ""
    if not bucket:
        return "under 256"
    return _span(128 << bucket, (256 << bucket) - 1)


def _round(bucket: int) -> str:
    if bucket == NO_ROUND:
        return ""
    if bucket == LATE_ROUND:
        return "64 and later"
    return _span(0 if bucket == 0 else 1 << (bucket - 1), (1 << bucket) - 1)


def _batch(bucket: int) -> str:
    return _span(1 if bucket == 0 else (1 << (bucket - 1)) + 1, 1 << bucket)


def _uptime(bucket: int) -> str:
    if bucket == 0:
        return "under 1 min"
    return f"{_span(1 << (bucket - 1), (1 << bucket) - 1)} min"


def _cached(bucket: int) -> str:
    return ("", "nothing", "up to 25 %", "to 50 %", "to 75 %", "over 75 %")[bucket]


def _greedy(bucket: int) -> str:
    return ("", "greedy", "sampling")[bucket]


def _chunked(bucket: int) -> str:
    return ("", "whole", "in pieces")[bucket]


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


CORRECT = 8
CONTEXT = Dimension("context_length", "context length, tokens", 16, 5, _context)
CACHED = Dimension("cached_share", "prompt found in the prefix cache", 21, 3, _cached)
ROUND = Dimension("round", "verify round of the request", 24, 4, _round)
BATCH = Dimension("batch_size", "batch size", 28, 5, _batch)
UPTIME = Dimension("uptime", "uptime of the process", 33, 5, _uptime)
GREEDY = Dimension("verification", "verification", 38, 2, _greedy)
CHUNKED = Dimension("prefill", "prefill", 40, 2, _chunked)
DIMENSIONS = (CONTEXT, CACHED, ROUND, BATCH, UPTIME, GREEDY, CHUNKED)


# Shifted buckets by value: a trace has millions of rounds, and each is filed under six of them.
CONTEXT_BITS = [min(30, n.bit_length()) << CONTEXT.shift for n in range(1024)]
"""By context length in steps of 256 tokens."""
ROUND_BITS = [n.bit_length() << ROUND.shift for n in range(64)]
BATCH_BITS = [0, *(n.bit_length() << BATCH.shift for n in range(1023))]
GREEDY_BITS, SAMPLED_BITS = 1 << GREEDY.shift, 2 << GREEDY.shift
NOT_GREEDY = ~(3 << GREEDY.shift)


def depth_of(record: VerifyRound) -> int:
    """Draft positions this round proposed: steps, or less when the budget of tokens was smaller."""
    return max(0, min(record.steps, record.proposed_drafts))


class SliceCounts:
    """Rounds by cell."""

    def __init__(self, *, requests: int = REQUESTS) -> None:
        self.cells: Counter[int] = Counter()
        self.by_batch: dict[int, Counter[int]] = {}
        """Exact batch size -> tokens of a round (bonus included) -> how often."""
        self.impossible = 0
        self._requests: Recent[str, int] = Recent(requests)

    def add_start(self, record: RequestStart) -> None:
        """Remember what a request's rounds are to be filed under."""
        bits = _cached_bucket(record) << CACHED.shift
        bits += _flag(record.chunked_prefill) << CHUNKED.shift
        greedy = record.greedy
        bits += (0 if greedy is None else 1 if greedy else 2) << GREEDY.shift
        self._requests.update({record.rid: bits})

    def add_end(self, record: RequestEnd) -> None:
        """Forget a request."""
        self._requests.pop(record.rid)

    def add_rounds(
        self, records: Iterable[VerifyRound], depths: Iterable[int], started_s: float
    ) -> None:
        """Count records. depths: draft positions that each proposed. started_s: monotonic."""
        cells: list[int] = []
        file, request_bits = cells.append, self._requests.get
        lengths: dict[int, list[int]] = {}
        uptime_bits, since_s, until_s = 0, 0.0, 0.0
        for record, depth in zip(records, depths, strict=True):
            correct, rids = record.correct_drafts, record.rids
            n = len(correct)
            if len(rids) != n or depth > DEEPEST:
                self.impossible += max(n, len(rids))
                continue
            now_s = record.monotonic_s
            if not since_s <= now_s < until_s:
                minutes = int((now_s - started_s) / 60)
                since_s = started_s + 60 * minutes
                until_s = since_s + 60
                uptime_bits = min(31, max(0, minutes).bit_length()) << UPTIME.shift
            batch = n + len(record.not_counted)
            common = depth + uptime_bits
            if batch < 1024:
                common += BATCH_BITS[batch]
            else:
                common += min(31, (batch - 1).bit_length()) << BATCH.shift
            contexts, rounds, greedy = record.context_lens, record.rounds, record.greedy
            if len(contexts) != n:
                contexts, common = [0] * n, common + (NO_CONTEXT << CONTEXT.shift)
            if len(rounds) != n:
                rounds, common = [0] * n, common + (NO_ROUND << ROUND.shift)
            told = len(greedy) == n
            its_lengths = lengths.get(batch)
            if its_lengths is None:
                its_lengths = lengths[batch] = []
            for i, right in enumerate(correct):
                if not 0 <= right <= depth:
                    self.impossible += 1
                    continue
                its_lengths.append(right)
                bits = request_bits(rids[i], 0)
                if told:  # what was verified counts, not what was asked for
                    bits = bits & NOT_GREEDY | (GREEDY_BITS if greedy[i] else SAMPLED_BITS)
                context, late = contexts[i] >> 8, rounds[i]
                if 0 <= context < 1024:
                    bits += CONTEXT_BITS[context]
                else:
                    bits += min(30, context.bit_length()) << CONTEXT.shift
                bits += ROUND_BITS[late] if 0 <= late < 64 else LATE_ROUND << ROUND.shift
                file(common + bits + (right << CORRECT))
        self.cells.update(cells)
        for batch, found in lengths.items():
            mine = self.by_batch.setdefault(batch, Counter())
            for right, times in Counter(found).items():
                mine[right + 1] += times

    def merge(self, other: SliceCounts) -> None:
        """Take in another process's counts."""
        self.cells.update(other.cells)
        for batch, lengths in other.by_batch.items():
            self.by_batch.setdefault(batch, Counter()).update(lengths)
        self.impossible += other.impossible

    def outcomes(self, keep: Callable[[int], bool] | None = None) -> Counter[Outcome]:
        """(positions proposed, correct drafts) -> rounds, of the cells that ``keep`` wants."""
        result: Counter[Outcome] = Counter()
        for cell, n in self.cells.items():
            if keep is None or keep(cell):
                result[cell & DEEPEST, (cell >> CORRECT) & DEEPEST] += n
        return result


def _cached_bucket(record: RequestStart) -> int:
    if record.cached_tokens is None or record.prompt_tokens <= 0:
        return 0
    share = record.cached_tokens / record.prompt_tokens
    return 1 + sum(share > edge for edge in (0, 0.25, 0.5, 0.75))


def _flag(value: bool | None) -> int:
    return 0 if value is None else 2 if value else 1


@dataclass(frozen=True)
class Slice:
    """One bucket of one dimension."""

    label: str
    acceptance: Acceptance
    """Of its rounds; requests are not counted here."""


@dataclass(frozen=True)
class Slices:
    """All buckets of one dimension that occurred, in natural order."""

    name: str
    title: str
    slices: tuple[Slice, ...]


def by_dimension(counts: SliceCounts) -> list[Slices]:
    """Dimensions with a recorded value; buckets that were not recorded are left out."""
    result = []
    for dimension in DIMENSIONS:
        found: dict[int, Counter[Outcome]] = {}
        for cell, n in counts.cells.items():
            mine = found.setdefault(dimension.bucket(cell), Counter())
            mine[cell & DEEPEST, (cell >> CORRECT) & DEEPEST] += n
        made = _slices({b: (dimension.label(b), found[b]) for b in sorted(found)})
        if made:
            result.append(Slices(dimension.name, dimension.title, made))
    return result


def by_name(name: str, title: str, groups: Mapping[str, Mapping[Outcome, int]]) -> Slices:
    """Slices counted elsewhere, such as per rank."""
    return Slices(name, title, _slices(dict(enumerate(groups.items()))))


def _slices(found: Mapping[int, tuple[str, Mapping[Outcome, int]]]) -> tuple[Slice, ...]:
    return tuple(
        Slice(label, from_outcomes(outcomes, requests=0))
        for label, outcomes in found.values()
        if label and sum(outcomes.values())
    )


ENOUGH_ROUNDS = 200
"""Rounds a slice needs before it is held against another."""


def surely_less(a: Slice, b: Slice, factor: float) -> bool:
    """Rounds of ``a`` have fewer correct drafts than ``factor`` times those of ``b``, 95 % apart.

    Correct drafts, not accept lengths: the bonus token comes whatever the draft does.
    """
    low, high = b.acceptance.accept_length_interval, a.acceptance.accept_length_interval
    if min(a.acceptance.rounds, b.acceptance.rounds) < ENOUGH_ROUNDS or low is None or high is None:
        return False
    return high.high - 1 < factor * (low.low - 1)
