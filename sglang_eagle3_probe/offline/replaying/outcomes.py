"""What playing a variation over all requests came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from sglang_eagle3_probe.analysis.intervals import Share
from sglang_eagle3_probe.offline.replaying.replay_play import Chosen, Played
from sglang_eagle3_probe.offline.replaying.variations import Variation

CERTAIN = 3.0
"""Standard errors: over twenty variations are tried, so one of them is at two by chance."""


@dataclass(frozen=True)
class Agreement:
    """How often the engine and a replay came to the same; ties differ within rounding.

    Of a variation: draft tokens at one step, given the same tokens before.
    """

    same: int
    ties: int
    compared: int

    @property
    def different(self) -> int:
        return self.compared - self.same - self.ties


@dataclass(frozen=True)
class Outcome:
    """One variation over all requests.

    Attributes:
        accuracy: teacher-forced, a step; of rows whose target is known.
        leading: int64 [N], right steps from the first on, a row with all steps known.
        agreement: a step; empty without captured rounds.
        failed: why it could not be run; empty if it was.
        set_aside: judged by its first token alone, on fewer rows than those that were not.
    """

    variation: Variation
    accuracy: tuple[Share, ...] = ()
    leading: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    agreement: tuple[Agreement, ...] = ()
    failed: str = ""
    set_aside: bool = False

    @property
    def length(self) -> float | None:
        """Accept length of chains started at these rows: 1 + mean of right steps. None where only
        the first token was judged."""
        if self.set_aside or not len(self.leading):
            return None
        return 1 + float(self.leading.double().mean())

    @property
    def different(self) -> Share:
        """Of the engine's tokens, those that differ by more than rounding; all steps."""
        return Share(
            sum(a.different for a in self.agreement), sum(a.compared for a in self.agreement)
        )


@dataclass(frozen=True)
class Difference:
    """Right steps of a variation minus those of the draft as configured: mean over the same rows,
    and its standard error."""

    mean: float
    error: float

    @property
    def is_certain_loss(self) -> bool:
        return self.mean < 0 and -self.mean > CERTAIN * self.error


def difference(outcome: Outcome, base: Outcome) -> Difference | None:
    """None where they were not judged on the same rows, or on none."""
    count = len(base.leading)
    if outcome.failed or not count or len(outcome.leading) != count:
        return None
    apart = outcome.leading.double() - base.leading.double()
    spread = float(apart.std()) if count > 1 else torch.inf
    return Difference(float(apart.mean()), spread / count**0.5)


def outcome_of(variation: Variation, played: Sequence[Played]) -> Outcome:
    """Sums up what a variation gave on each request."""
    right = torch.cat([p.right & p.known for p in played])
    known = torch.cat([p.known for p in played])
    accuracy = tuple(
        Share(int(right[:, k].sum()), int(known[:, k].sum())) for k in range(right.shape[1])
    )
    leading = right[known.all(dim=1)].cumprod(1).sum(1)
    same = [p.same for p in played if p.same is not None]
    ties = [p.tie for p in played if p.tie is not None]
    agreement: tuple[Agreement, ...] = ()
    if same:
        all_same, all_ties = torch.cat(same), torch.cat(ties)
        agreement = tuple(
            Agreement(int(all_same[:, k].sum()), int(all_ties[:, k].sum()), len(all_same))
            for k in range(all_same.shape[1])
        )
    return Outcome(variation, accuracy, leading, agreement)


def picked(played: Played, whole: Chosen, few: Chosen, steps: int | None = None) -> Played:
    """The part of a result that belongs to fewer rows and rounds, and to the first steps."""
    at = torch.searchsorted(whole.rows, few.rows)
    rounds = torch.searchsorted(whole.rounds, few.rounds)
    same = played.same[rounds, :steps] if played.same is not None else None
    tie = played.tie[rounds, :steps] if played.tie is not None else None
    return Played(played.right[at, :steps], played.known[at, :steps], same, tie)
