"""How a slot's difference lies to what the layers around its boundary add to the stream.

A layer adds attention and MLP output to the stream. States that stop half way, or lack a part of
the last addition, differ by a vector along that addition; noise does not. The additions are taken
between boundaries of one forward, never across the two sides: there the difference itself would be
in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from sglang_eagle3_probe.offline.comparing.measures import cosines, norm_ratios
from sglang_eagle3_probe.offline.comparing.pairs import Pairs

DIRECTED = 0.3
"""Median cosine with a layer's addition that noise does not have."""
NEAR = 0.9
"""Cosine with the whole stream of states that lack a part of it."""
LARGEST = 1.2
"""A part of an addition is not longer than this many of it."""
ALONE = 0.6
APART = 0.1


@dataclass(frozen=True)
class Update:
    """``lacking_elsewhere``: the rows have more of the last addition than the server has."""

    name: Literal["missing_residual", "partial_sum", "overwritten", "lacking_elsewhere"]
    cosine: float


def update_of(
    pairs: Pairs, rows: torch.Tensor, h: int, near: int, directed: float = DIRECTED
) -> Update | None:
    """What rows [T, H] that should be boundary ``h`` lack of it, or have beyond it.

    Args:
        near: the boundary nearest to the rows.
        directed: median cosine with an addition that is no chance.

    Returns:
        None without the boundaries ``h`` and ``h - 1`` or ``h + 1``, and where nothing is clear.
    """
    own = pairs.boundary(h)
    if own is None:
        return None
    before, after = pairs.boundary(h - 1), pairs.boundary(h + 1)
    if before is not None:
        added = own.float() - before.float()
        alone = float(cosines(rows, added).median())
        whole = max(float(cosines(rows, state).median()) for state in (own, before))
        if alone >= ALONE and alone > whole + APART:
            return Update("missing_residual", alone)
    if float(cosines(rows, own).median()) < NEAR:
        return None
    if near != h and not lies_between(pairs, rows, near):
        return None
    gap = rows.float() - own.float()
    found: list[Update] = []
    if before is not None:
        added = own.float() - before.float()
        if float(norm_ratios(gap, added).median()) < LARGEST:
            cosine = float(cosines(gap, added).median())
            found.append(Update("partial_sum", -cosine))
            if pairs.info.tp_size > 1:
                found.append(Update("lacking_elsewhere", cosine))
    if after is not None:
        added = after.float() - own.float()
        if float(norm_ratios(gap, added).median()) < LARGEST:
            found.append(Update("overwritten", float(cosines(gap, added).median())))
    best = max(found, key=lambda update: update.cosine, default=None)
    return best if best is not None and best.cosine >= directed else None


def lies_between(pairs: Pairs, rows: torch.Tensor, h: int) -> bool:
    """Whether rows near boundary ``h`` differ from it along a layer's addition."""
    own = pairs.boundary(h)
    if own is None:
        return False
    gap = rows.float() - own.float()
    for neighbour in (pairs.boundary(h - 1), pairs.boundary(h + 1)):
        if neighbour is None:
            continue
        added = neighbour.float() - own.float()
        if float(cosines(gap, added).median()) >= DIRECTED:
            return True
    return False
