"""Confidence intervals, 95 % throughout."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Interval:
    """Both ends included."""

    low: float
    high: float


def wilson(hits: int, seen: int) -> Interval:
    """Interval of a share. Holds its level near 0 and 1, where the textbook one collapses."""
    if seen <= 0:
        return Interval(0.0, 1.0)
    share, z2 = hits / seen, Z * Z
    middle = share + z2 / (2 * seen)
    spread = Z * math.sqrt(share * (1 - share) / seen + z2 / (4 * seen * seen))
    scale = 1 + z2 / seen
    # At the edges the formula gives 0 and 1 up to rounding; say so exactly.
    low = 0.0 if hits == 0 else (middle - spread) / scale
    high = 1.0 if hits == seen else (middle + spread) / scale
    return Interval(low, high)


@dataclass(frozen=True)
class Share:
    """Hits among cases seen."""

    hits: int
    seen: int

    @property
    def share(self) -> float | None:
        """``None`` when no case was seen."""
        return self.hits / self.seen if self.seen else None

    @property
    def interval(self) -> Interval:
        """Wilson, 95 %."""
        return wilson(self.hits, self.seen)


def student(degrees: int, z: float = Z) -> float:
    """Two-sided quantile of Student's t (95 %), by expansion around the normal one, ``z``.

    Within 0.1 % from 7 degrees of freedom, 1.5 % from 3; below that it is too small.
    """
    n = float(degrees)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def mean_interval(counts: dict[int, int], low: int, high: int) -> tuple[float, Interval | None]:
    """Mean of whole numbers given as value -> how often, and the interval of that mean.

    The values lie between ``low`` and ``high``. When all are equal the spread seen is no evidence
    of a spread of zero, so the interval comes from the chance of an unseen other value (Wilson).
    ``None`` with fewer than two values.
    """
    n = sum(counts.values())
    if n == 0:
        return math.nan, None
    mean = sum(v * c for v, c in counts.items()) / n
    if n < 2:
        return mean, None
    variance = sum(c * (v - mean) ** 2 for v, c in counts.items()) / (n - 1)
    if variance == 0:
        other = 1 - wilson(n, n).low
        return mean, Interval(mean - other * (mean - low), mean + other * (high - mean))
    half = student(n - 1) * math.sqrt(variance / n)
    return mean, Interval(max(float(low), mean - half), min(float(high), mean + half))
