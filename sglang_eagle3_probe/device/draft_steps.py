"""What a draft loop keeps at each step: candidates, scores, recurrent states, by row of the batch.

Under CUDA graphs these live in memory that the next replay may reuse, so the copies into these
buffers are recorded in the graph, where there is one, and read after it.
"""

from __future__ import annotations

from typing import Any

import torch

MAX_BYTES = 128 * 1024 * 1024
"""Of all buffers together. Rows of the batch beyond what fits go unseen."""


class DraftSteps:
    """Newest values of each draft step. Allocates in the constructor only.

    Attributes:
        ids: int64 [steps, rows, topk], target ids. scores: float32, same shape.
        hidden: [steps, rows, topk, width], the state that each candidate was drawn from.
        kept: (name, step) -> has ever been kept. A captured graph keeps at each replay what was
            kept once while it was captured.
    """

    def __init__(
        self, rows: int, steps: int, topk: int, width: int, dtype: Any, device: Any
    ) -> None:
        row_bytes = steps * topk * (width * dtype.itemsize + 12)
        self.rows = max(1, min(rows, MAX_BYTES // row_bytes))
        self.steps, self.topk, self.width = steps, topk, width
        shape = (steps, self.rows, topk)
        self.ids = torch.zeros(shape, dtype=torch.int64, device=device)
        self.scores = torch.zeros(shape, dtype=torch.float32, device=device)
        self.hidden = torch.zeros((*shape, width), dtype=dtype, device=device)
        self.kept: set[tuple[str, int]] = set()

    @property
    def nbytes(self) -> int:
        """Bytes of all three buffers."""
        tensors = (self.ids, self.scores, self.hidden)
        return sum(int(t.numel()) * int(t.element_size()) for t in tensors)

    def keep(self, name: str, step: int, values: Any) -> bool:
        """Keep a step's ``ids``, ``scores`` ([rows * topk] in any shape) or ``hidden``
        ([rows * topk, width]). Safe under graph capture. False when they are of another kind."""
        buffer = getattr(self, name)
        per_row = self.topk * (self.width if name == "hidden" else 1)
        if not 0 <= step < self.steps or values.numel() % per_row:
            return False
        if name == "hidden" and values.shape[-1] != self.width:
            return False
        rows = min(self.rows, values.numel() // per_row)
        if rows:
            target = buffer[step, :rows]
            target.copy_(values.reshape(-1, *target.shape[1:])[:rows])
        self.kept.add((name, step))
        return True

    def has(self, name: str, steps: int) -> bool:
        """Whether every one of the first ``steps`` steps was kept."""
        return steps <= self.steps and all((name, step) in self.kept for step in range(steps))
