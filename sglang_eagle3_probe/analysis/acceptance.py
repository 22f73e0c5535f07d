"""Acceptance from verify rounds.

A *round* here is one request in one verify round. **Accept length** counts the bonus token,
**correct drafts** does not. The **unconditional** rate at position k is the share of the rounds
that proposed position k in which drafts 0..k were all right; the **conditional** rate divides by
the rounds in which drafts 0..k-1 were right. Positions a round did not propose count as unseen, so
adaptive steps do not depress later positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sglang_eagle3_probe.analysis.intervals import Interval, Share, mean_interval
from sglang_eagle3_probe.trace.rounds import Outcome, RoundCounts

INTERVAL_OVER = "rounds, taken as independent"
"""What the interval of the accept length is over; rounds of one request are somewhat alike, so the
true interval is a little wider."""


@dataclass(frozen=True)
class Rate(Share):
    """Acceptance at one draft position, 0-based, among the rounds that got that far."""

    position: int


@dataclass(frozen=True)
class Acceptance:
    """Acceptance over a set of rounds."""

    rounds: int
    requests: int
    correct_drafts: int
    proposed_positions: int
    accept_length: float | None
    """Tokens per round, bonus token included; ``None`` without rounds."""
    accept_length_interval: Interval | None
    unconditional: tuple[Rate, ...]
    conditional: tuple[Rate, ...]
    histogram: tuple[int, ...]
    """Entry c: rounds with c correct drafts."""
    steps: Mapping[int, int]
    """Draft positions proposed -> rounds; more than one key means adaptive steps."""

    @property
    def accept_rate(self) -> float | None:
        """SGLang's accept rate: correct drafts / proposed draft positions."""
        return self.correct_drafts / self.proposed_positions if self.proposed_positions else None


def accept(counts: RoundCounts) -> Acceptance:
    """Acceptance over everything counted."""
    return from_outcomes(counts.outcomes, requests=len(counts.by_request))


def per_request(counts: RoundCounts) -> dict[str, Acceptance]:
    """Acceptance of each request, by rid digest."""
    return {rid: from_outcomes(own, requests=1) for rid, own in counts.by_request.items()}


def from_outcomes(outcomes: Mapping[Outcome, int], *, requests: int) -> Acceptance:
    """Acceptance from (steps, correct drafts) -> number of rounds."""
    rounds = sum(outcomes.values())
    deepest = max((steps for steps, _ in outcomes), default=0)
    by_correct: Counter[int] = Counter()
    by_steps: Counter[int] = Counter()
    for (steps, correct), n in outcomes.items():
        by_correct[correct] += n
        by_steps[steps] += n
    unconditional, conditional = [], []
    for k in range(deepest):
        proposed = [(c, n) for (steps, c), n in outcomes.items() if steps > k]
        hits = sum(n for c, n in proposed if c > k)
        unconditional.append(Rate(hits, sum(n for _, n in proposed), k))
        conditional.append(Rate(hits, sum(n for c, n in proposed if c >= k), k))
    lengths = {correct + 1: n for correct, n in by_correct.items()}
    mean, interval = mean_interval(lengths, 1, deepest + 1)
    return Acceptance(
        rounds=rounds,
        requests=requests,
        correct_drafts=sum(c * n for c, n in by_correct.items()),
        proposed_positions=sum(s * n for s, n in by_steps.items()),
        accept_length=mean if rounds else None,
        accept_length_interval=interval,
        unconditional=tuple(unconditional),
        conditional=tuple(conditional),
        histogram=tuple(by_correct[c] for c in range(deepest + 1)) if rounds else (),
        steps=dict(sorted(by_steps.items())),
    )
