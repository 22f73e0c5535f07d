"""Distances between rows of states, one number a token.

A few tokens (the first, delimiters) have states a hundred times as large as the others, so nothing
here is summed over tokens: each token counts once, and medians speak.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CHUNK = 256
"""Rows at a time in float32, so that wide states do not double in memory."""


@dataclass(frozen=True)
class Spread:
    """The middle of a number over tokens, and where 80 of 100 tokens lie."""

    median: float
    low: float
    high: float


def spread(values: torch.Tensor) -> Spread:
    """Median, 10th and 90th percentile of [T]; T must not be 0."""
    ordered = values.to(torch.float64).sort().values
    last = len(ordered) - 1
    low, mid, high = (float(ordered[round(last * q)]) for q in (0.1, 0.5, 0.9))
    return Spread(mid, low, high)


def relative_errors(target: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    """float32 [T]: ``|target - candidate| / |target|`` of each row; infinite where not finite.

    Args:
        target: [T, H], what is to be explained.
        candidate: [T, H].
    """
    found = torch.empty(len(target))
    for start in range(0, len(target), CHUNK):
        part = slice(start, start + CHUNK)
        x, c = target[part].float(), candidate[part].float()
        gap, size = (x - c).norm(dim=-1), x.norm(dim=-1)
        errors = torch.where(size == 0, torch.where(gap == 0, 0.0, torch.inf), gap / size)
        found[part] = errors.nan_to_num(nan=torch.inf, posinf=torch.inf)
    return found


def cosines(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """float32 [T]; 0 where a row is 0 or not finite."""
    a, b = first.float(), second.float()
    scale = a.norm(dim=-1) * b.norm(dim=-1)
    return torch.where(scale > 0, (a * b).sum(-1) / scale, torch.zeros(())).nan_to_num(0.0)


def norm_ratios(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """float32 [T]: of the rows' norms; infinite where the denominator is 0."""
    return (numerator.float().norm(dim=-1) / denominator.float().norm(dim=-1)).nan_to_num(
        nan=torch.inf, posinf=torch.inf
    )


def scaled_errors(target: torch.Tensor, candidate: torch.Tensor) -> tuple[float, torch.Tensor]:
    """One factor for all tokens that brings ``candidate`` near ``target``, and the errors then."""
    x, c = target.float(), candidate.float()
    size = (c * c).sum(-1)
    usable = size > 0
    if not bool(usable.any()):
        return 1.0, relative_errors(target, candidate)
    factor = float(((x * c).sum(-1)[usable] / size[usable]).median())
    return factor, relative_errors(x, factor * c)


def normed_errors(target: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    """Errors if ``target`` were an RMS norm of ``candidate`` with a weight that is not known.

    The weight is fitted on every second token and judged on the others, both ways round, so that
    fitting alone explains nothing.
    """
    x, c = target.float(), candidate.float()
    root = c.square().mean(-1, keepdim=True).sqrt()
    unit = torch.where(root > 0, c / root, torch.zeros(()))
    found = torch.empty(len(x))
    for fitted in (0, 1):
        mine, theirs = slice(fitted, None, 2), slice(1 - fitted, None, 2)
        weight = (x[mine] * unit[mine]).sum(0) / unit[mine].square().sum(0).clamp_min(1e-12)
        found[theirs] = relative_errors(x[theirs], unit[theirs] * weight)
    return found


def turned_errors(target: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    """Errors if ``candidate`` were ``target`` in another orthogonal basis, which is not known.

    A turn keeps every inner product between tokens, so those are compared: of each row with all
    others, the mean row taken off first since it makes all streams of a model look alike.
    """
    grams = []
    for rows in (target, candidate):
        centred = rows.float() - rows.float().mean(0)
        unit = torch.nn.functional.normalize(centred, dim=-1)
        grams.append((unit @ unit.T).fill_diagonal_(0))
    return relative_errors(grams[0], grams[1])


def empty_share(rows: torch.Tensor) -> float:
    """Share of rows [T, H] that are all zero or hold numbers that are not finite."""
    sizes = rows.float().norm(dim=-1)
    return float(((sizes == 0) | ~sizes.isfinite()).float().mean())
