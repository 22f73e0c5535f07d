"""Rows that are right for another token: stale buffers and wrong gathers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_eagle3_probe.offline.comparing.measures import CHUNK
from sglang_eagle3_probe.offline.comparing.pairs import Pairs

BAD = 0.15
"""Relative error of a row that is not its token's, where the median is far below."""
TIMES = 5
FOUND = 0.05
LEAST = 3
SHOWN = 8


@dataclass(frozen=True)
class Moved:
    """Served rows that hold the states of other tokens.

    Attributes:
        rows: how many; ``bad``: how many are wrong at all; ``of``: rows compared.
        back: by how many tokens most of them lag; negative: ahead; 0: no common distance.
        positions: the first few.
        decoded: how many belong to verify rounds.
    """

    rows: int
    bad: int
    of: int
    back: int
    positions: tuple[int, ...]
    decoded: int


def outlying(errors: torch.Tensor) -> torch.Tensor:
    """int64: which rows are off by far more than the median row."""
    return (errors > max(BAD, TIMES * float(errors.median()))).nonzero().flatten()


def moved_rows(pairs: Pairs, slot: int, errors: torch.Tensor) -> Moved | None:
    """Rows of a served slot that match the trained row of another token of the same request.

    Args:
        errors: float32 [T] of the slot against the trained slot.
    """
    bad = outlying(errors)
    if len(bad) < LEAST:
        return None
    found: list[tuple[int, int]] = []
    trained = pairs.trained[:, slot].float()
    for start in range(0, len(bad), CHUNK):
        part = bad[start : start + CHUNK]
        served = pairs.served[part, slot].float()
        gaps = torch.cdist(served, trained) / served.norm(dim=-1, keepdim=True)
        gaps[pairs.request[part][:, None] != pairs.request[None]] = torch.inf
        best = gaps.nan_to_num(nan=torch.inf).min(dim=1)
        for row, gap, source in zip(
            part.tolist(), best.values.tolist(), best.indices.tolist(), strict=True
        ):
            if gap <= FOUND and source != row:
                found.append((row, source))
    if len(found) < max(LEAST, len(bad) // 2):
        return None
    rows = torch.tensor([row for row, _ in found])
    distances = pairs.positions[rows] - pairs.positions[torch.tensor([s for _, s in found])]
    common = int(distances.mode().values)
    return Moved(
        rows=len(found),
        bad=len(bad),
        of=len(errors),
        back=common if int((distances == common).sum()) * 2 > len(found) else 0,
        positions=tuple(pairs.positions[rows[:SHOWN]].tolist()),
        decoded=int(pairs.decoded[rows].sum()),
    )
