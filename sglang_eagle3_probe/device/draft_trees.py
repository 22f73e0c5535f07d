"""Where in the draft's search each submitted draft of a tree stood: copied as the search ends.

SGLang's search (``select_top_k_tokens``; read in 0.5.13, 0.5.17 and 0.5.23) numbers candidates:
``topk`` after the root, then at each later step ``topk`` children of each of ``topk`` beams. What
``draft_forward`` returns tells the rest: ``parent_list`` names the candidate that each group of
``topk`` siblings stems from, and its columns from 1 on are, step by step, the candidates that the
draft was run on; ``top_scores_index`` names the candidates that were submitted.
"""

from __future__ import annotations

from typing import Any

import torch


class DraftTrees:
    """The newest search of each row of the batch. Allocates in the constructor only.

    Attributes:
        parents: int64 [rows, 1 + (steps - 1) * topk]. Column 0 is the root's, -1; column
            1 + (step - 1) * topk + beam is the candidate that decode step ``step``, from 1, was
            run on.
        submitted: int64 [rows, nodes - 1]: candidate of each submitted draft, ascending.
    """

    def __init__(self, rows: int, steps: int, topk: int, nodes: int, *, device: Any) -> None:
        self.topk = topk
        self.nodes = nodes
        width = 1 + max(0, steps - 1) * topk
        self.parents = torch.full((rows, width), -1, device=device, dtype=torch.int64)
        self.submitted = torch.full((rows, nodes - 1), -1, device=device, dtype=torch.int64)

    def keep(self, parents: Any, submitted: Any) -> bool:
        """Keep what ``draft_forward`` returned. Safe under capture.

        Args:
            parents: ``parent_list``, [requests, 1 + (steps - 1) * topk]; one step has none.
            submitted: ``top_scores_index``, [requests, nodes - 1].
        """
        wide = self.parents.shape[1]
        if (
            submitted.dim() != 2
            or submitted.shape[1] != self.submitted.shape[1]
            or (wide > 1 and tuple(parents.shape) != (submitted.shape[0], wide))
        ):
            return False
        rows = min(int(self.submitted.shape[0]), int(submitted.shape[0]))
        self.submitted[:rows].copy_(submitted[:rows])
        if wide > 1:
            self.parents[:rows].copy_(parents[:rows])
        return True
