"""Two runs compared: is the difference in accept length real, or within the noise of requests?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sglang_eagle3_probe.analysis.acceptance import Acceptance, Rate, accept
from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.analysis.intervals_of_differences import (
    ClusteredMean,
    clustered_mean,
    mean_difference,
)
from sglang_eagle3_probe.trace.rounds import Outcome, RoundCounts

FEWEST_REQUESTS = 5
"""Per run. With fewer, the spread between requests is not known well enough to say anything."""

Answer = Literal["same", "longer", "shorter", "cannot_tell"]


@dataclass(frozen=True)
class PositionDifference:
    """Conditional rates at one position. The interval has requests as its unit."""

    position: int
    a: Rate
    b: Rate
    difference: float
    """b - a."""
    interval: Interval | None

    @property
    def real(self) -> bool:
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True)
class RunDifference:
    """Run b against run a."""

    a: Acceptance
    b: Acceptance
    difference: float | None
    """Accept length of b minus that of a; ``None`` when one has no rounds."""
    interval: Interval | None
    """95 %, requests as the unit (Welch on ratio estimates)."""
    positions: tuple[PositionDifference, ...]
    """Positions that both proposed. Each at 95 %: of many, some look real by chance."""
    answer: Answer
    why: str
    """For ``cannot_tell``: what is missing."""
    settings_differ: bool
    """Steps differ, so the ceilings do; conditional rates stay comparable."""


def compare_runs(a: RoundCounts, b: RoundCounts) -> RunDifference:
    """Compare. The answer rests on the accept length alone."""
    seen_a, seen_b = accept(a), accept(b)
    mean_a, mean_b = _length(a), _length(b)
    difference: float | None = None
    interval: Interval | None = None
    answer: Answer = "cannot_tell"
    if mean_a is None or mean_b is None:
        side = "first" if mean_a is None else "second"
        why = f"the {side} run has no verify rounds"
    else:
        difference, interval = mean_difference(mean_b, mean_a)
        fewest = min(mean_a.requests, mean_b.requests)
        if fewest < FEWEST_REQUESTS or interval is None:
            why = f"one run has {fewest} request(s), and {FEWEST_REQUESTS} are needed in each"
        else:
            why = ""
            answer = "longer" if interval.low > 0 else "shorter" if interval.high < 0 else "same"
    return RunDifference(
        a=seen_a,
        b=seen_b,
        difference=difference,
        interval=interval,
        positions=_positions(a, b, seen_a, seen_b),
        answer=answer,
        why=why,
        settings_differ=set(seen_a.steps) != set(seen_b.steps),
    )


def _length(counts: RoundCounts) -> ClusteredMean | None:
    return clustered_mean(
        [
            (sum(own.values()), sum((correct + 1) * n for (_, correct), n in own.items()))
            for own in counts.by_request.values()
        ]
    )


def _positions(
    a: RoundCounts, b: RoundCounts, seen_a: Acceptance, seen_b: Acceptance
) -> tuple[PositionDifference, ...]:
    result = []
    for rate_a, rate_b in zip(seen_a.conditional, seen_b.conditional, strict=False):
        mean_a = clustered_mean([_reached(own, rate_a.position) for own in a.by_request.values()])
        mean_b = clustered_mean([_reached(own, rate_a.position) for own in b.by_request.values()])
        if mean_a is None or mean_b is None:
            continue
        difference, interval = mean_difference(mean_b, mean_a)
        if min(mean_a.requests, mean_b.requests) < FEWEST_REQUESTS:
            interval = None
        result.append(PositionDifference(rate_a.position, rate_a, rate_b, difference, interval))
    return tuple(result)


def _reached(own: Mapping[Outcome, int], position: int) -> tuple[int, float]:
    reached = [(correct, n) for (steps, correct), n in own.items() if steps > position <= correct]
    return sum(n for _, n in reached), float(sum(n for correct, n in reached if correct > position))
