"""Why a draft was refused: the draft's logits kept until verification, and what is read off them.

Draft logits live for one forward only, and under CUDA graphs in memory that the next replay may
reuse. So each draft step copies its logits into a buffer of ours, inside the graph where there is
one, and after verification one launch reduces what matters to a record of the ring: tick + 1, rows
of the launch, position of the first refused draft, rank of the target's token there, whether the
refused draft (in a tree, one of those submitted there) was the target's argmax, a flag, and two
words left zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .draft_trees import DraftTrees
from .layout import SiteLayout
from .ring import Place, Ring

NOTHING_REFUSED = -1
"""Position of a row whose drafts were all right."""

UNKNOWN = -1
"""Word 4 where nothing was refused, or the place in the tree was not found."""

SEEN, NOT_SEEN, OUTSIDE, UNEXPANDED = 0, 1, 2, 3
"""Word 5: the rank was found; the draft's logits were not kept, or are not those that the submitted
drafts came from; the target's token is not in the draft vocabulary; the draft was not run on the
last right draft of the tree, so it has no distribution there."""

MAX_BYTES = 256 * 1024 * 1024
"""Of all kept logits together. Requests beyond what fits go unseen."""

LAYOUT = SiteLayout("refusals", slots=1, max_rows=64, depth=256)


class DraftLogits:
    """The newest draft logits, by draft step. Allocates in the constructor only.

    Attributes:
        first: float32 [rows + 1, draft vocabulary]. Logits that the first draft of each request
            came from, by its index in SGLang's request pool, since batches change between the
            extend that makes them and the round that uses them. The last row takes what does not
            fit.
        later: float32 [steps - 1, rows * topk, draft vocabulary], by row of the batch and beam.
        trees: where the submitted drafts stood in the search; ``None`` for chains.
    """

    def __init__(
        self,
        pool_rows: int,
        steps: int,
        vocabulary: int,
        *,
        topk: int = 1,
        nodes: int = 0,
        device: Any,
    ) -> None:
        """nodes: draft tokens of a tree, root included; not used for chains."""
        self.steps = steps
        self.topk = topk
        self.vocabulary = vocabulary
        layers = 1 + max(0, steps - 1) * topk
        self.rows = max(1, min(pool_rows, MAX_BYTES // (4 * vocabulary * layers)))
        # An eager forward may put out another type than a captured one; float32 holds either.
        self.first = torch.zeros((self.rows + 1, vocabulary), device=device, dtype=torch.float32)
        self.later = torch.zeros(
            (max(0, steps - 1), self.rows * topk, vocabulary), device=device, dtype=torch.float32
        )
        self.trees = DraftTrees(self.rows, steps, topk, nodes, device=device) if topk > 1 else None

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return int((self.first.numel() + self.later.numel()) * self.first.element_size())

    def fits(self, logits: Any) -> bool:
        """Whether these are logits of the kind that the buffers hold."""
        return bool(
            logits.dim() == 2
            and logits.shape[1] == self.vocabulary
            and logits.is_floating_point()
            and logits.device == self.first.device
        )

    def keep_first(self, pool_indices: Any, logits: Any) -> bool:
        """Keep [requests, draft vocabulary] logits by the requests' pool indices."""
        if not self.fits(logits) or logits.shape[0] != pool_indices.shape[0]:
            return False
        # The clamp stays where all rows fit: an index outside would take the device down.
        places = pool_indices.clamp(max=self.rows)
        if places.dtype != torch.int64:
            places = places.to(torch.int64)
        values = logits if logits.dtype == torch.float32 else logits.to(torch.float32)
        self.first.index_copy_(0, places, values)
        return True

    def keep_later(self, step: int, logits: Any) -> bool:
        """Keep a decode step's logits, [requests * topk, draft vocabulary]; ``step`` 1 is the
        first. Safe under capture."""
        if not 1 <= step <= self.later.shape[0] or not self.fits(logits):
            return False
        rows = min(int(self.later.shape[1]), int(logits.shape[0]))
        self.later[step - 1, :rows].copy_(logits[:rows])
        return True


@dataclass(frozen=True)
class Verified:
    """A verify round as it stands on the device right after acceptance.

    Attributes:
        accept_lens: [requests] integers, bonus token counted.
        predict: [requests * nodes] integers: the accepted path's tokens at the front of each
            request's nodes, the bonus token last.
        drafts: [requests * nodes] integers, node 0 the root.
        target_logits: [requests * nodes, target vocabulary], as verification saw them.
        pool_indices: [requests] integers.
        inverse: [target vocabulary] int32, draft id of each target token or -1; ``None`` where
            both vocabularies are one.
        nodes: draft tokens submitted per request, root included.
        topk: 1 for chains, in which node k + 1 is the draft of position k.
    """

    accept_lens: Any
    predict: Any
    drafts: Any
    target_logits: Any
    pool_indices: Any
    inverse: Any
    nodes: int
    steps: int
    topk: int = 1

    @property
    def requests(self) -> int:
        """Requests of the round."""
        return int(self.accept_lens.shape[0])

    def suits(self, kept: DraftLogits) -> bool:
        """Whether the shapes fit each other and what was kept; anything else is left alone."""
        rows = self.requests * self.nodes
        return bool(
            self.requests
            and self.topk == kept.topk
            and (kept.trees is None or self.nodes == kept.trees.nodes)
            and self.predict.numel() == rows
            and self.drafts.numel() == rows
            and self.target_logits.dim() == 2
            and self.target_logits.shape[0] == rows
            and self.target_logits.stride(1) == 1
            and self.pool_indices.shape[0] == self.requests
        )


def inverse_map(target_ids: Any, target_vocabulary: int) -> Any:
    """int32 [target vocabulary]: draft id of each target token, -1 where there is none.

    Args:
        target_ids: [draft vocabulary] integers: target id of each draft id (``hot_token_id``).
    """
    ids = target_ids.to(torch.int64)
    inverse = torch.full((target_vocabulary,), -1, dtype=torch.int32, device=ids.device)
    places = torch.arange(ids.numel(), dtype=torch.int32, device=ids.device)
    good = (ids >= 0) & (ids < target_vocabulary)
    inverse[ids[good]] = places[good]
    return inverse


def record_refusals(ring: Ring, place: Place, round_: Verified, kept: DraftLogits) -> bool:
    """Record a round as the next tick of the site: by the kernel on CUDA, else by the twin.

    Not under capture. Returns False when it cannot.
    """
    if not round_.suits(kept):
        return False
    if ring.device.type != "cuda":
        from .refusal_reference import record

        record(ring, place, round_, kept)
        return True
    from .tap import kernels

    if kernels() is None or torch.cuda.is_current_stream_capturing():
        return False
    from .refusal_kernels import launch

    launch(ring, place, round_, kept)
    return True
