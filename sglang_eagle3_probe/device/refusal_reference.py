"""The refusal kernel's twin in plain torch, for CPU tensors: the definition of what it computes."""

from __future__ import annotations

from typing import Any

import torch

from .layout import row_step
from .reference import WORD
from .refusals import NOT_SEEN, NOTHING_REFUSED, OUTSIDE, SEEN, UNKNOWN, DraftLogits, Verified
from .ring import Place, Ring


def describe(row: int, round_: Verified, kept: DraftLogits) -> tuple[int, int, int, int]:
    """(position, rank, argmax matches, flag) of one request."""
    position = int(round_.accept_lens[row]) - 1
    if not 0 <= position < round_.steps:
        return NOTHING_REFUSED, 0, UNKNOWN, SEEN
    at = row * round_.nodes + position
    token = int(round_.predict[at])
    if round_.chain:
        draft = int(round_.drafts[at + 1])
        target = round_.target_logits[at]
        matches = int(bool(target[draft] >= target.max()))
    elif position:
        return position, 0, UNKNOWN, NOT_SEEN
    else:
        draft, matches = -1, UNKNOWN
    logits = _logits(row, position, round_, kept)
    if logits is None:
        return position, 0, matches, NOT_SEEN
    vocabulary = kept.vocabulary
    if draft >= 0:
        submitted = _draft_id(draft, round_, vocabulary)
        if submitted < 0 or not bool(logits[submitted] >= logits.max()):
            return position, 0, matches, NOT_SEEN
    wanted = _draft_id(token, round_, vocabulary)
    if wanted < 0:
        return position, 0, matches, OUTSIDE
    return position, 1 + int((logits > logits[wanted]).sum()), matches, SEEN


def _logits(row: int, position: int, round_: Verified, kept: DraftLogits) -> Any:
    if position:
        inside = position <= kept.later.shape[0] and row < kept.rows
        return kept.later[position - 1, row] if inside else None
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
