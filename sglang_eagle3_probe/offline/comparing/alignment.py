"""Finds the same tokens in a capture and in a trainer's sample: the longest run of equal ids.

The run is found exactly, by ranks of ever longer windows (as suffix arrays are built), in
O(n log n) tensor operations; 100 000 ids a side take about a second on one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

WINDOW = 16
"""A common run shorter than this is not looked for."""
MULTIPLIER = 6364136223846793005
MOST_TOKENS = 1 << 24
"""Of all samples together; a search over more would need gigabytes."""
ANCHORED = 64
"""A common beginning this long is preferred to a longer run further on: only there have both sides
seen the same text before."""
LOOKED_AT = 8
"""Samples per request whose exact run is found: those that share the most windows."""


@dataclass(frozen=True)
class Run:
    """``length`` equal ids: from ``first_start`` in one sequence, ``second_start`` in another."""

    first_start: int
    second_start: int
    length: int


def longest_common_run(first: torch.Tensor, second: torch.Tensor) -> Run:
    """The longest run of equal ids; of several, the one that begins earliest in ``first``.

    Args:
        first: int64 [n]. Negative ids are unknown and equal nothing.
        second: int64 [m].

    Returns:
        A run of length 0 where no id is common.
    """
    n = len(first)
    if not n or not len(second):
        return Run(0, 0, 0)
    joined = _no_negatives(torch.cat([first, torch.tensor([-1]), second]))
    rank = _ranked(joined)
    if not _common(rank, n, 1):
        return Run(0, 0, 0)
    ranks = [rank]
    while 2 << (len(ranks) - 1) <= min(n, len(second)):
        width = 1 << (len(ranks) - 1)
        doubled = _longer(ranks[-1], ranks[-1], width)
        if not _common(doubled, n, 2 * width):
            break
        ranks.append(doubled)
    found, length = ranks[-1], 1 << (len(ranks) - 1)
    for level in range(len(ranks) - 2, -1, -1):
        width = 1 << level
        if length + width > min(n, len(second)):
            continue
        longer = _longer(found, ranks[level], length)
        if _common(longer, n, length + width):
            found, length = longer, length + width
    mine, theirs = found[: n - length + 1], found[n + 1 : len(found) - length + 1]
    start = int(_held_by(theirs, len(found))[mine].nonzero()[0])
    other = int((theirs == mine[start]).nonzero()[0])
    return Run(start, other, length)


def common_beginning(first: torch.Tensor, second: torch.Tensor) -> int:
    """How many ids are equal from the start on."""
    most = min(len(first), len(second))
    differ = ((first[:most] != second[:most]) | (first[:most] < 0)).nonzero()
    return int(differ[0]) if len(differ) else most


def aligned(first: torch.Tensor, second: torch.Tensor) -> Run:
    """The run to compare on: the common beginning where it is long enough, else the longest."""
    beginning = common_beginning(first, second)
    longest = longest_common_run(first, second)
    if beginning >= min(ANCHORED, longest.length):
        return Run(0, 0, beginning)
    return longest


class WindowIndex:
    """Which of many samples share windows of ``WINDOW`` ids with a request."""

    def __init__(self, samples: Sequence[torch.Tensor]) -> None:
        hashes, owners = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
        for number, ids in enumerate(samples):
            found = _window_hashes(ids)
            hashes.append(found)
            owners.append(torch.full((len(found),), number))
        order = torch.cat(hashes).argsort()
        self._hashes = torch.cat(hashes)[order]
        self._owners = torch.cat(owners)[order]
        self._count = len(samples)

    def candidates(self, ids: torch.Tensor) -> list[int]:
        """Numbers of the samples that share windows, those that share most first.

        Windows with equal hashes are not compared: who asks finds the exact run anyway.
        """
        wanted = torch.unique(_window_hashes(ids))
        if not len(wanted) or not len(self._hashes):
            return []
        hit = torch.isin(self._hashes, wanted)
        counts = torch.bincount(self._owners[hit], minlength=self._count)
        order = counts.argsort(descending=True, stable=True)[:LOOKED_AT]
        return [int(number) for number in order if counts[number]]


def _window_hashes(ids: torch.Tensor) -> torch.Tensor:
    """One wrapped polynomial hash for each window that holds no unknown id."""
    count = len(ids) - WINDOW + 1
    if count <= 0:
        return torch.empty(0, dtype=torch.int64)
    hashes = torch.zeros(count, dtype=torch.int64)
    known = torch.ones(count, dtype=torch.bool)
    for offset in range(WINDOW):
        column = ids[offset : offset + count]
        hashes = hashes * MULTIPLIER + column
        known &= column >= 0
    return hashes[known]


def _no_negatives(joined: torch.Tensor) -> torch.Tensor:
    """Every negative id as a value of its own, so that it equals nothing."""
    unknown = joined < 0
    return torch.where(unknown, -1 - torch.arange(len(joined)), joined)


def _longer(front: torch.Tensor, back: torch.Tensor, width: int) -> torch.Tensor:
    """Ranks of windows that join a window of ``width`` ids and the one that follows it.

    Windows that would reach past the end get ranks of their own.
    """
    size = len(front)
    ranks = torch.arange(size) + size
    if size > width:
        pairs = front[: size - width] * (2 * size) + back[width:]
        ranks[: size - width] = _ranked(pairs)
    return ranks


def _ranked(values: torch.Tensor) -> torch.Tensor:
    """Values as ranks from 0: equal values have equal ranks."""
    ordered, order = values.sort()
    ranks = torch.empty_like(order)
    ranks[order] = torch.cat([order.new_zeros(1), (ordered[1:] != ordered[:-1]).cumsum(0)])
    return ranks


def _held_by(ranks: torch.Tensor, size: int) -> torch.Tensor:
    """bool [2 * size]: which ranks occur."""
    held = torch.zeros(2 * size, dtype=torch.bool)
    held[ranks] = True
    return held


def _common(rank: torch.Tensor, n: int, width: int) -> bool:
    mine, theirs = rank[: n - width + 1], rank[n + 1 : len(rank) - width + 1]
    return bool(len(mine)) and bool(len(theirs)) and bool(_held_by(theirs, len(rank))[mine].any())
