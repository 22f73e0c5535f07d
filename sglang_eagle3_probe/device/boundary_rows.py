"""Every boundary of the target, for the first rows of each forward.

Written layer by layer while the target runs: recorded in the graph, where there is one, and read
after it. One boundary takes as much as the hidden states themselves, so only rows that fit are
kept.
"""

from __future__ import annotations

from typing import Any

import torch


class BoundaryRows:
    """Newest values of all boundaries. Allocates in the constructor only.

    Attributes:
        states: [boundaries, rows, width]: boundary 0 is the embedding output, the last one what
            enters the final norm.
        norm: [rows, width]: what leaves the final norm.
        seen: boundaries written since ``begin``; ``count`` stands for the final norm.
        recorded: boundaries whose copies are part of a captured graph.
    """

    def __init__(self, nbytes: int, boundaries: int, width: int, dtype: Any, device: Any) -> None:
        self.count, self.width = boundaries, width
        self.rows = max(1, nbytes // ((boundaries + 1) * width * dtype.itemsize))
        # Not zeroed: on the CPU, what is never used takes no memory then.
        self.states = torch.empty((boundaries, self.rows, width), dtype=dtype, device=device)
        self.norm = torch.empty((self.rows, width), dtype=dtype, device=device)
        self.seen: set[int] = set()
        self.recorded: set[int] = set()

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return int((self.states.numel() + self.norm.numel()) * self.states.element_size())

    def begin(self) -> None:
        """The next forward's boundaries are to come."""
        self.seen.clear()

    def keep(self, index: int, hidden: Any, residual: Any = None) -> bool:
        """Keep ``hidden + residual`` as a boundary (``count``: the final norm). [rows, width] each.

        Safe under graph capture. False when the shapes are others.
        """
        if hidden.dim() != 2 or hidden.shape[1] != self.width or not 0 <= index <= self.count:
            return False
        if residual is not None and residual.shape != hidden.shape:
            return False
        rows = min(self.rows, int(hidden.shape[0]))
        target = self.norm[:rows] if index == self.count else self.states[index, :rows]
        if residual is None:
            target.copy_(hidden[:rows])
        elif residual.dtype == hidden.dtype == target.dtype:
            torch.add(hidden[:rows], residual[:rows], out=target)
        else:
            target.copy_(hidden[:rows] + residual[:rows])
        if target.is_cuda and torch.cuda.is_current_stream_capturing():
            self.recorded.add(index)
        else:
            self.seen.add(index)
        return True

    def is_whole(self) -> bool:
        """Whether every boundary of the newest forward is here, by an eager copy or by a graph."""
        wanted = set(range(self.count + 1))
        return wanted <= self.seen or wanted <= self.recorded
