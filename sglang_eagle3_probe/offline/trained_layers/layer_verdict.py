"""Which of some combinations the data single out, by paired differences of their scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from sglang_eagle3_probe.analysis.intervals import Interval, student
from sglang_eagle3_probe.offline.trained_layers.layer_scores import Scores
from sglang_eagle3_probe.offline.trained_layers.layer_search import Columns

LEVEL = 0.99
"""Of each comparison: the best is compared with a handful of near ones, which then together stay
within about 5 %."""
Z = 2.5758293035489004
"""Two-sided 99 % quantile of the normal distribution."""
HIDDEN = 0.2
"""Nats a token. Trained drafts of the fixtures lead their controls by 0.77 and more."""
REQUESTS = 8
"""With fewer requests, blocks of rows take their place."""
BLOCK = 64


@dataclass(frozen=True)
class Margin:
    """A mean paired difference in nats a token, and its interval at ``LEVEL``."""

    mean: float
    interval: Interval

    @property
    def clear(self) -> bool:
        """The interval lies above zero."""
        return self.interval.low > 0

    @property
    def vague(self) -> bool:
        """Not clear, and so wide that a difference worth having may hide in it."""
        return not self.clear and self.interval.high > HIDDEN


@dataclass(frozen=True)
class Contender:
    """A combination on all rows, and by how much the best one is better (None: it is the best)."""

    columns: Columns
    score: float
    accuracy: float
    behind: Margin | None


@dataclass(frozen=True)
class Ranking:
    """Contenders, best first.

    Attributes:
        clusters: independent groups of rows that the intervals are made of.
        over_chance: best against the guess by frequency. over_shuffled: best against itself with
            states of other positions.
    """

    contenders: tuple[Contender, ...]
    clusters: int
    cluster_kind: str
    over_chance: Margin
    over_shuffled: Margin

    @property
    def informed(self) -> bool:
        """The draft knows something, and the states are where it has it from."""
        return self.over_chance.clear and self.over_shuffled.clear

    @property
    def best(self) -> Contender:
        return self.contenders[0]

    @property
    def possible(self) -> tuple[Contender, ...]:
        """Those that the data do not rule out, the best included."""
        return tuple(c for c in self.contenders if c.behind is None or not c.behind.clear)

    @property
    def decided(self) -> bool:
        return self.informed and len(self.possible) == 1


def clusters_of(request: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Number of the cluster of each row [R], and what clusters are.

    Rows of one request are alike, so that requests are counted, not rows. With few requests there
    is nothing to count; then blocks of rows are taken for independent.
    """
    distinct, numbers = torch.unique(request, return_inverse=True)
    if len(distinct) >= REQUESTS:
        return numbers, "requests"
    within = torch.arange(len(request)) // BLOCK
    _, blocks = torch.unique(numbers * (len(request) + 1) + within, return_inverse=True)
    return blocks, f"blocks of {BLOCK} rows (too few requests to count these)"


def margin(better: torch.Tensor, worse: torch.Tensor, clusters: torch.Tensor) -> Margin:
    """Mean of ``better - worse`` over rows, [R] each, with a cluster-robust interval."""
    difference = (better - worse).to(torch.float64)
    mean = float(difference.mean())
    count = int(clusters.max()) + 1
    if count < 2:
        return Margin(mean, Interval(-math.inf, math.inf))
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, clusters, difference - mean)
    # The ratio estimator of a mean over clusters of unequal size.
    variance = float(sums.square().sum()) * count / (count - 1) / len(difference) ** 2
    half = student(count - 1, Z) * math.sqrt(variance)
    return Margin(mean, Interval(mean - half, mean + half))


def rank(
    scores: Mapping[Columns, Scores],
    shuffled: Scores,
    chance: torch.Tensor,
    request: torch.Tensor,
) -> Ranking:
    """Orders combinations and compares each with the best.

    Args:
        scores: of each combination, on the same rows.
        shuffled: of the best one, with states of other positions.
        chance: [R], of the guess by frequency.
        request: int64 [R], request that each row comes from.
    """
    clusters, kind = clusters_of(request)
    ordered = sorted(scores, key=lambda columns: scores[columns].mean, reverse=True)
    best = scores[ordered[0]]
    contenders = tuple(
        Contender(
            columns,
            scores[columns].mean,
            scores[columns].accuracy,
            margin(best.values, scores[columns].values, clusters) if index else None,
        )
        for index, columns in enumerate(ordered)
    )
    return Ranking(
        contenders,
        int(clusters.max()) + 1,
        kind,
        margin(best.values, chance, clusters),
        margin(best.values, shuffled.values, clusters),
    )
