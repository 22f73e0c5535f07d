"""Intervals of differences, 95 % throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.analysis.intervals import Interval, student, wilson


def share_difference(
    hits_a: float, seen_a: int | None, hits_b: int, seen_b: int
) -> tuple[float, Interval]:
    """Share a - share b and its interval (Newcombe's, from the two Wilson intervals).

    With ``seen_a`` ``None``, ``hits_a`` is a share taken as exact.
    """
    if seen_a is None:
        a, around_a = hits_a, Interval(hits_a, hits_a)
    else:
        a, around_a = hits_a / seen_a, wilson(round(hits_a), seen_a)
    b, around_b = hits_b / seen_b, wilson(hits_b, seen_b)
    low = a - b - math.hypot(a - around_a.low, around_b.high - b)
    high = a - b + math.hypot(around_a.high - a, b - around_b.low)
    return a - b, Interval(max(-1.0, low), min(1.0, high))


@dataclass(frozen=True)
class ClusteredMean:
    """Mean over rounds that come in requests, with the spread between requests in its error.

    Rounds of one request are alike, so rounds counted as independent claim too much.
    """

    mean: float
    standard_error: float
    """``nan`` with fewer than two requests."""
    requests: int
    rounds: int


def clustered_mean(requests: Sequence[tuple[int, float]]) -> ClusteredMean | None:
    """From (rounds, total of the rounds' values) per request; ``None`` without rounds.

    The mean is total / rounds over all; its error that of a ratio estimate (linearised).
    """
    kept = [(n, total) for n, total in requests if n > 0]
    rounds = sum(n for n, _ in kept)
    if not rounds:
        return None
    mean = sum(total for _, total in kept) / rounds
    count = len(kept)
    if count < 2:
        return ClusteredMean(mean, math.nan, count, rounds)
    squares = sum((total - mean * n) ** 2 for n, total in kept)
    error = math.sqrt(count / (count - 1) * squares) / rounds
    return ClusteredMean(mean, error, count, rounds)


def mean_difference(a: ClusteredMean, b: ClusteredMean) -> tuple[float, Interval | None]:
    """a - b and its interval (Welch); ``None`` with fewer than two requests on a side."""
    difference = a.mean - b.mean
    error = math.hypot(a.standard_error, b.standard_error)
    if math.isnan(error):
        return difference, None
    if error == 0:
        return difference, Interval(difference, difference)
    degrees = error**4 / sum(
        side.standard_error**4 / (side.requests - 1) for side in (a, b) if side.standard_error
    )
    half = student(max(3, round(degrees))) * error
    return difference, Interval(difference - half, difference + half)
