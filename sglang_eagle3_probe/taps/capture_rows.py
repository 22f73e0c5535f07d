"""Which tensors of a forward belong to one request, and into which parcel they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..device.boundary_rows import BoundaryRows
from ..device.capture_arena import CaptureArena, Parcel, Spec, bytes_of
from ..device.draft_steps import DraftSteps

SHARE_OF_ARENA = 4
"""A prefill piece takes a quarter of the arena at most: longer ones are cut."""


@dataclass(frozen=True)
class Verify:
    """A verify round as it stands on the device right after acceptance.

    Attributes:
        states: [requests * nodes, aux width], by node of the tree.
        logits: [requests * nodes, vocabulary].
        drafts, positions: [requests * nodes], node 0 of each request the root.
        predict: [requests * nodes], the accepted path's tokens first. accept_lens: [requests].
        first_child, next_sibling: [requests, nodes], within the request; ``None`` for a chain.
    """

    states: Any
    logits: Any
    drafts: Any
    positions: Any
    predict: Any
    accept_lens: Any
    first_child: Any
    next_sibling: Any
    nodes: int
    steps: int
    topk: int

    def is_whole(self, requests: int) -> bool:
        """Whether the shapes fit each other."""
        rows = requests * self.nodes
        return bool(
            self.states is not None
            and self.logits is not None
            and self.states.dim() == 2
            and self.states.shape[0] >= rows
            and self.logits.shape[0] >= rows
            and self.drafts.numel() >= rows
            and self.positions.numel() >= rows
            and self.predict.numel() >= rows
            and self.accept_lens.numel() >= requests
        )


def take_round(
    arena: CaptureArena,
    verify: Verify,
    row: int,
    draft: DraftSteps | None,
    boundaries: BoundaryRows | None,
) -> Parcel | None:
    """Copy what one request's row of a round left into a parcel. ``None`` when there is no room.

    Args:
        draft: the draft's steps, where this round's are in them.
        boundaries: all boundaries of this forward, where the request wants them.
    """
    import torch

    nodes, steps = verify.nodes, verify.steps
    rows = slice(row * nodes, (row + 1) * nodes)
    sources: dict[str, Any] = {
        "aux": verify.states[rows],
        "node_ids": verify.drafts.view(-1)[rows],
        "node_positions": verify.positions.view(-1)[rows],
        "predict": verify.predict.view(-1)[rows],
        "accept_len": verify.accept_lens.view(-1)[row : row + 1],
    }
    if verify.first_child is not None and verify.next_sibling is not None:
        sources["first_child"] = verify.first_child.view(-1)[rows]
        sources["next_sibling"] = verify.next_sibling.view(-1)[rows]
    if draft is not None and row < draft.rows:
        if draft.has("scores", steps):
            sources["step_scores"] = draft.scores[:steps, row]
        if draft.has("hidden", steps):
            sources["step_hidden"] = draft.hidden[:steps, row]
        if draft.has("ids", steps):
            sources["step_ids"] = draft.ids[:steps, row]
        elif verify.topk == 1:
            # A chain's candidates are its nodes.
            sources["step_ids"] = verify.drafts.view(-1)[rows][1 : steps + 1].view(-1, 1)
    if boundaries is not None and rows.stop <= boundaries.rows:
        sources["boundary_states"] = boundaries.states[:, rows]
        sources["final_norm"] = boundaries.norm[rows]
    specs = specs_of(sources)
    specs["target_ids"] = (torch.int64, (nodes,))
    parcel = arena.reserve(specs)
    if parcel is None:
        return None
    for name, source in sources.items():
        arena.on_device(parcel, name).copy_(source)
    torch.argmax(verify.logits[rows], dim=-1, out=arena.on_device(parcel, "target_ids"))
    return parcel


@dataclass(frozen=True)
class Block:
    """Rows ``start`` to ``stop - 1`` of a prefill forward, in a parcel; ``None``: no room."""

    start: int
    stop: int
    parcel: Parcel | None
    with_boundaries: bool


def take_prefill(
    arena: CaptureArena,
    states: Any,
    start: int,
    stop: int,
    boundaries: BoundaryRows | None,
) -> list[Block]:
    """Copy rows of a prefill's aux states into parcels, as many as it takes.

    Room for ``draft_input_ids`` and ``next_id`` (int64) is kept in each: SGLang has them later.

    Args:
        boundaries: all boundaries of this forward, where the request wants them.
    """
    blocks: list[Block] = []
    at = start
    kept = min(stop, boundaries.rows) if boundaries is not None else start
    while at < stop:
        with_boundaries = at < kept
        end = kept if with_boundaries else stop
        specs = _prefill_specs(states, boundaries if with_boundaries else None, 1)
        one_row = bytes_of(specs)
        end = min(end, at + max(1, arena.nbytes // SHARE_OF_ARENA // one_row))
        rows = slice(at, end)
        specs = _prefill_specs(states, boundaries if with_boundaries else None, end - at)
        parcel = arena.reserve(specs)
        if parcel is not None:
            arena.on_device(parcel, "aux").copy_(states[rows])
            if with_boundaries and boundaries is not None:
                arena.on_device(parcel, "boundary_states").copy_(boundaries.states[:, rows])
                arena.on_device(parcel, "final_norm").copy_(boundaries.norm[rows])
        blocks.append(Block(at, end, parcel, with_boundaries and parcel is not None))
        at = end
    return blocks


def _prefill_specs(states: Any, boundaries: BoundaryRows | None, rows: int) -> dict[str, Spec]:
    import torch

    specs: dict[str, Spec] = {
        "aux": (states.dtype, (rows, int(states.shape[1]))),
        "draft_input_ids": (torch.int64, (rows,)),
        "next_id": (torch.int64, (1,)),
    }
    if boundaries is not None:
        dtype = boundaries.states.dtype
        specs["boundary_states"] = (dtype, (boundaries.count, rows, boundaries.width))
        specs["final_norm"] = (dtype, (rows, boundaries.width))
    return specs


def specs_of(sources: dict[str, Any]) -> dict[str, Spec]:
    """dtype and shape of each tensor."""
    return {n: (t.dtype, tuple(int(size) for size in t.shape)) for n, t in sources.items()}
