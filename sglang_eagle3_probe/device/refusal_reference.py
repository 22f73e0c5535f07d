"""The refusal kernel's twin in plain torch, for CPU tensors: the definition of what it computes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .draft_trees import DraftTrees
from .layout import row_step
from .reference import WORD
from .refusals import (
    NOT_SEEN,
    NOTHING_REFUSED,
    OUTSIDE,
    SEEN,
    UNEXPANDED,
    UNKNOWN,
    DraftLogits,
    Verified,
)
from .ring import Place, Ring


def describe(row: int, round_: Verified, kept: DraftLogits) -> tuple[int, int, int, int]:
    """(position, rank, argmax matches, flag) of one request."""
    position = int(round_.accept_lens[row]) - 1
    if not 0 <= position < round_.steps:
        return NOTHING_REFUSED, 0, UNKNOWN, SEEN
    token = int(round_.predict[row * round_.nodes + position])
    if kept.trees is None:
        place = Found(position, [position + 1], 0)
    else:
        found = _in_tree(row, position, round_, kept.trees)
        if found is None:
            return position, 0, UNKNOWN, NOT_SEEN
        place = found
    drafts = [int(round_.drafts[row * round_.nodes + node]) for node in place.children]
    target = round_.target_logits[row * round_.nodes + place.node]
    matches = int(any(bool(target[draft] >= target.max()) for draft in drafts))
    if place.beam is None:
        return position, 0, matches, UNEXPANDED
    logits = _logits(row, position, place.beam, round_, kept)
    if logits is None or not all(
        _is_best(_draft_id(draft, round_, kept.vocabulary), logits, round_.topk) for draft in drafts
    ):
        return position, 0, matches, NOT_SEEN
    wanted = _draft_id(token, round_, kept.vocabulary)
    if wanted < 0:
        return position, 0, matches, OUTSIDE
    return position, 1 + int((logits > logits[wanted]).sum()), matches, SEEN


class Found(NamedTuple):
    """Where drafts ended.

    node: the last right draft, 0 for the root. children: nodes submitted after it. beam: of the
    decode step that was run on it; ``None`` where none was.
    """

    node: int
    children: list[int]
    beam: int | None


def _in_tree(row: int, position: int, round_: Verified, trees: DraftTrees) -> Found | None:
    """Walk down by the accepted tokens, as verification did; ``None`` where they do not lead on."""
    if row >= trees.submitted.shape[0]:
        return None
    topk, parents = trees.topk, trees.parents[row].tolist()
    candidates = [-1, *trees.submitted[row].tolist()]
    stems_from = [parents[c // topk] if 0 <= c // topk < len(parents) else None for c in candidates]

    def children(candidate: int) -> list[int]:
        return [node for node, stem in enumerate(stems_from) if node and stem == candidate]

    node = 0
    for depth in range(position):
        wanted = int(round_.predict[row * round_.nodes + depth])
        fitting = (
            child
            for child in children(candidates[node])
            if int(round_.drafts[row * round_.nodes + child]) == wanted
        )
        node = next(fitting, -1)
        if node < 0:
            return None
    if not position:
        return Found(0, children(-1), 0)
    first = 1 + (position - 1) * topk
    beams = parents[first : first + topk]
    beam = beams.index(candidates[node]) if candidates[node] in beams else None
    return Found(node, children(candidates[node]), beam)


def _is_best(draft: int, logits: Any, topk: int) -> bool:
    """Whether the draft could have been submitted on the ground of these logits."""
    return draft >= 0 and int((~(logits <= logits[draft])).sum()) < topk


def _logits(row: int, position: int, beam: int, round_: Verified, kept: DraftLogits) -> Any:
    if position:
        inside = position <= kept.later.shape[0] and row < kept.rows
        return kept.later[position - 1, row * kept.topk + beam] if inside else None
    index = int(round_.pool_indices[row])
    return kept.first[index] if 0 <= index < kept.rows else None


def _draft_id(token: int, round_: Verified, vocabulary: int) -> int:
    if round_.inverse is None:
        return token if 0 <= token < vocabulary else -1
    return int(round_.inverse[token]) if 0 <= token < round_.inverse.shape[0] else -1


def record(ring: Ring, place: Place, round_: Verified, kept: DraftLogits) -> None:
    """Record a round as the next tick of the site."""
    layout = place.layout
    rows = round_.requests
    tick = int(ring.buffer[place.tick]) & WORD
    following = (tick + 1) & WORD
    tag = following - (WORD + 1) if following > WORD >> 1 else following
    words = [
        [tag, rows, *describe(row, round_, kept), 0, 0]
        for row in range(0, rows, row_step(rows, layout.max_rows))
    ]
    flat = torch.tensor(words, dtype=torch.int32).flatten()
    start = place.records + (tick % layout.depth) * layout.max_rows * layout.slots * 8
    ring.buffer[start : start + flat.numel()] = flat
    ring.buffer[place.tick] = tag
