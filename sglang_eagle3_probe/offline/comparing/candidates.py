"""What a slot's states could be instead: every state at hand, ranked by its error per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from sglang_eagle3_probe.offline.comparing.measures import relative_errors
from sglang_eagle3_probe.offline.comparing.pairs import Pairs

Kind = Literal["boundary", "slot", "final_norm", "last", "embedding"]

RATIO = 0.7
"""A candidate is clearly better with an error of at most this share of the other's ..."""
WINS = 0.9
"""... and the smaller error at this share of the tokens."""
SAME = 1e-3
"""Two candidates nearer to each other than this are one."""


@dataclass(frozen=True)
class Candidate:
    """One state that may be what a slot holds.

    ``index``: the boundary h, or the slot from 0; -1 otherwise.
    """

    kind: Kind
    index: int
    rows: torch.Tensor = field(repr=False)
    errors: torch.Tensor = field(repr=False)
    """float32 [T]: relative errors of these rows as an explanation of the slot's."""

    @property
    def median(self) -> float:
        return float(self.errors.median())

    def is_(self, kind: Kind, index: int = -1) -> bool:
        return (self.kind, self.index) == (kind, index)


def clearly(best: Candidate, other: Candidate) -> bool:
    """Whether ``best`` explains the slot better beyond doubt, token by token."""
    if best.median > RATIO * other.median or other.median == 0:
        return False
    return float((best.errors < other.errors).float().mean()) >= WINS


def served_states(pairs: Pairs) -> Iterator[tuple[Kind, int, torch.Tensor]]:
    """Everything that the served target had at the tokens, boundaries first."""
    for h in pairs.info.all_boundaries:
        state = pairs.boundary(h)
        if state is not None:
            yield "boundary", h, state
    for i in range(pairs.served.shape[1]):
        own = pairs.boundary(pairs.info.boundaries[i])
        if own is None or _apart(own, pairs.served[:, i]):
            yield "slot", i, pairs.served[:, i]
    if pairs.final_norm is not None:
        yield "final_norm", -1, pairs.final_norm
    if pairs.embedding is not None and pairs.boundary(0) is None:
        yield "embedding", -1, pairs.embedding


def trained_states(pairs: Pairs) -> Iterator[tuple[Kind, int, torch.Tensor]]:
    """Everything that the trainer saved at the tokens."""
    for j in range(pairs.trained.shape[1]):
        yield "slot", j, pairs.trained[:, j]
    if pairs.last is not None:
        yield "last", -1, pairs.last


def ranked(target: torch.Tensor, pool: Sequence[tuple[Kind, int, torch.Tensor]]) -> list[Candidate]:
    """The pool as explanations of ``target`` [T, H], the smallest median error first."""
    found = [
        Candidate(kind, index, rows, relative_errors(target, rows)) for kind, index, rows in pool
    ]
    return sorted(found, key=lambda candidate: candidate.median)


def runner_up(order: Sequence[Candidate]) -> Candidate | None:
    """The best candidate that is not the very same state as the first under another name."""
    best = order[0]
    for other in order[1:]:
        if _apart(best.rows, other.rows):
            return other
    return None


def _apart(first: torch.Tensor, second: torch.Tensor) -> bool:
    return bool(relative_errors(first, second).median() > SAME)
