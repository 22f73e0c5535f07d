"""Rows of a capture beside the rows that a trainer saved for the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.offline.comparing.training_states.sample import LastForm


@dataclass(frozen=True)
class Alignment:
    """Where one request and one sample hold the same tokens.

    Attributes:
        tokens: length of the common run of ids.
        rows: of them with states on both sides, and used.
        first_position: of the run in the request; first_id: in the sample's ids.
        same_beginning: both sides saw the same text before every row of the run. Otherwise
            states differ for a good reason: the text before is another.
        row_shift: rows of the sample fit best so many rows after where its format says.
    """

    request: str
    sample: str
    producer: str
    why: str
    tokens: int
    rows: int
    first_position: int
    first_id: int
    same_beginning: bool
    row_shift: int = 0


@dataclass(frozen=True)
class Pairs:
    """T tokens seen by both sides.

    Attributes:
        served: [T, A, H], the slots in the order of the concatenation.
        trained: [T, n, H], in the order of the file.
        last: [T, H], the trainer's last state.
        boundary_states: [T, B, H], rows h as in ``info.all_boundaries``.
        final_norm: [T, H] of the served target.
        embedding: [T, H], the target's weights at the tokens.
        token_ids, positions, request: int64 [T]; ``request`` numbers the alignments.
        decoded: bool [T]; rows of verify rounds, not of the prompt.
    """

    info: PieceInfo
    served: torch.Tensor
    trained: torch.Tensor
    token_ids: torch.Tensor
    positions: torch.Tensor
    request: torch.Tensor
    decoded: torch.Tensor
    last: torch.Tensor | None = None
    last_form: LastForm = "unknown"
    boundary_states: torch.Tensor | None = None
    final_norm: torch.Tensor | None = None
    embedding: torch.Tensor | None = None
    claimed: tuple[int, ...] | None = None
    same_beginning: bool = True

    def boundary(self, h: int) -> torch.Tensor | None:
        """[T, H] of the served target, or None if that one was not captured."""
        if self.boundary_states is None or h not in self.info.all_boundaries:
            return None
        return self.boundary_states[:, self.info.all_boundaries.index(h)]
