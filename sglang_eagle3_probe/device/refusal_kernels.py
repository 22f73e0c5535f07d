# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language is untyped. No `from __future__ import annotations` here: Triton reads the
# annotations of its kernels.
"""The Triton kernel that looks at refused drafts; ``refusal_reference`` says what it computes."""

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .layout import row_step, sampled_rows
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

BLOCK = 4096
WARPS = 8

_NOTHING_REFUSED = tl.constexpr(NOTHING_REFUSED)
_UNKNOWN = tl.constexpr(UNKNOWN)
_SEEN = tl.constexpr(SEEN)
_NOT_SEEN = tl.constexpr(NOT_SEEN)
_OUTSIDE = tl.constexpr(OUTSIDE)
_UNEXPANDED = tl.constexpr(UNEXPANDED)
_ROOT = tl.constexpr(-1)
_NOBODY = tl.constexpr(-2)
"""Candidate that stands for no node's parent."""


@triton.jit
def _greatest(row_ptr, width, BLOCK: tl.constexpr):
    """Greatest of ``width`` values."""
    best = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(row_ptr + column, mask=column < width, other=float("-inf"))
        best = tl.maximum(best, value.to(tl.float32))
    return tl.max(best, axis=0)


@triton.jit
def _greater(row_ptr, width, than, BLOCK: tl.constexpr):
    """How many of ``width`` values are greater."""
    count = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(row_ptr + column, mask=column < width, other=float("-inf"))
        count += tl.where(value.to(tl.float32) > than, 1, 0)
    return tl.sum(count, axis=0)


@triton.jit
def _not_below(row_ptr, width, than, BLOCK: tl.constexpr):
    """How many of ``width`` values are greater, or not comparable."""
    count = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(row_ptr + column, mask=column < width, other=float("-inf"))
        count += tl.where((column < width) & ~(value.to(tl.float32) <= than), 1, 0)
    return tl.sum(count, axis=0)


@triton.jit
def _draft_id(token, inverse_ptr, target_width, draft_width, MAPPED: tl.constexpr):
    """Draft id of a target token, -1 where it has none."""
    if MAPPED:
        known = (token >= 0) & (token < target_width)
        found = tl.load(inverse_ptr + token, mask=known, other=-1).to(tl.int32)
    else:
        found = tl.where((token >= 0) & (token < draft_width), token, -1).to(tl.int32)
    return found


@triton.jit
def _in_tree(
    parents_ptr,  # [rows, width]
    submitted_ptr,  # [rows, nodes - 1]
    predict_ptr,
    tokens,
    width,
    row,
    nodes,
    position,
    is_kept,
    TOPK: tl.constexpr,
    BEAMS: tl.constexpr,
    NODES: tl.constexpr,
):
    """(last right draft or NODES, mask of the nodes after it, beam or BEAMS)."""
    place = tl.arange(0, NODES)
    is_node = (place > 0) & (place < nodes) & is_kept
    row_ptr = submitted_ptr + row.to(tl.int64) * (nodes - 1)
    candidates = tl.load(row_ptr + place - 1, mask=is_node, other=-1).to(tl.int64)
    group = candidates // TOPK
    is_known = is_node & (candidates >= 0) & (group < width)
    row_ptr = parents_ptr + row.to(tl.int64) * width
    stem = tl.load(row_ptr + group, mask=is_known, other=_NOBODY).to(tl.int64)

    node = tl.zeros([], dtype=tl.int32)
    candidate = tl.full([], _ROOT, dtype=tl.int64)
    for depth in range(position):
        wanted = tl.load(predict_ptr + row * nodes + depth)
        fits = is_known & (stem == candidate) & (tokens == wanted)
        node = tl.min(tl.where(fits, place, NODES), axis=0)
        mine = tl.max(tl.where(place == node, candidates, _NOBODY - 1), axis=0)
        candidate = tl.where(node < NODES, mine, _NOBODY - 1)

    beam = tl.zeros([], dtype=tl.int32)
    if position > 0:
        beams = tl.arange(0, BEAMS)
        column = 1 + (position - 1) * TOPK + beams
        is_beam = (beams < TOPK) & (column < width) & is_kept
        ran_on = tl.load(row_ptr + column, mask=is_beam, other=_NOBODY).to(tl.int64)
        beam = tl.min(tl.where(is_beam & (ran_on == candidate), beams, BEAMS), axis=0)
    if not is_kept:
        node = tl.full([], NODES, dtype=tl.int32)
    return node, is_known & (stem == candidate), beam


@triton.jit(
    do_not_specialize=[
        "parents_width",
        "requests",
        "row_step",
        "nodes",
        "steps",
        "kept_rows",
        "kept_later",
        "max_rows",
        "depth_mask",
        "tick_at",
        "done_at",
        "records_at",
    ]
)
def refusal_kernel(
    accept_lens_ptr,
    predict_ptr,
    drafts_ptr,
    target_ptr,  # [requests * nodes, target_width]
    pool_ptr,
    first_ptr,  # [kept_rows + 1, draft_width]
    later_ptr,  # [kept_later, kept_rows * TOPK, draft_width]
    parents_ptr,
    submitted_ptr,
    inverse_ptr,
    ring_ptr,
    target_stride,
    target_width,
    inverse_width,
    draft_width,
    parents_width,
    requests,
    row_step,
    nodes,
    steps,
    kept_rows,
    kept_later,
    max_rows,
    depth_mask,
    tick_at,
    done_at,
    records_at,
    TOPK: tl.constexpr,
    BEAMS: tl.constexpr,  # TOPK, rounded up to a power of two
    NODES: tl.constexpr,  # more than a request has, a power of two
    MAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (sampled requests,)."""
    program = tl.program_id(0)
    row = program * row_step
    tick = tl.load(ring_ptr + tick_at)
    position = tl.load(accept_lens_ptr + row).to(tl.int32) - 1
    rank = 0
    matches = _UNKNOWN
    flag = _SEEN
    if (position < 0) | (position >= steps):
        position = _NOTHING_REFUSED
    else:
        flag = _NOT_SEEN
        place = tl.arange(0, NODES)
        tokens = tl.load(drafts_ptr + row * nodes + place, mask=place < nodes, other=-1)
        tokens = tokens.to(tl.int32)
        if TOPK == 1:
            node = position
            children = place == position + 1
            beam = 0
        else:
            node, children, beam = _in_tree(
                parents_ptr,
                submitted_ptr,
                predict_ptr,
                tokens,
                parents_width,
                row,
                nodes,
                position,
                row < kept_rows,
                TOPK,
                BEAMS,
                NODES,
            )
        if node < NODES:
            at = (row * nodes + node).to(tl.int64)
            target_row = target_ptr + at * target_stride
            theirs = tl.load(target_row + tokens, mask=children, other=float("-inf"))
            likeliest = tl.max(theirs.to(tl.float32), axis=0)
            is_argmax = likeliest >= _greatest(target_row, target_width, BLOCK)
            some = tl.max(tl.where(children, 1, 0), axis=0) > 0
            matches = tl.where(some & is_argmax, 1, 0)

            index = tl.load(pool_ptr + row).to(tl.int64)
            logits = first_ptr + index * draft_width
            kept = (index >= 0) & (index < kept_rows)
            if position > 0:
                later_row = ((position - 1).to(tl.int64) * kept_rows + row) * TOPK + beam
                logits = later_ptr + later_row * draft_width
                kept = (position <= kept_later) & (row < kept_rows)
            if beam >= BEAMS:
                flag = _UNEXPANDED
            elif kept:
                submitted = _draft_id(tokens, inverse_ptr, inverse_width, draft_width, MAPPED)
                named = tl.load(
                    logits + submitted, mask=children & (submitted >= 0), other=float("inf")
                )
                worst = tl.min(named.to(tl.float32), axis=0)
                strange = tl.max(tl.where(children & (submitted < 0), 1, 0), axis=0) > 0
                # A node without children gives nothing to doubt by.
                ahead = _not_below(logits, draft_width, worst, BLOCK)
                if ((ahead < TOPK) | ~some) & ~strange:
                    token = tl.load(predict_ptr + row * nodes + position).to(tl.int32)
                    wanted = _draft_id(token, inverse_ptr, inverse_width, draft_width, MAPPED)
                    flag = _OUTSIDE
                    if wanted >= 0:
                        than = tl.load(logits + wanted).to(tl.float32)
                        rank = 1 + _greater(logits, draft_width, than, BLOCK)
                        flag = _SEEN

    # One store of eight neighbouring lanes, as in ``kernels.record_kernel``.
    word = tl.arange(0, 8)
    record = tl.where(word == 0, tick + 1, requests)
    record = tl.where(word == 2, position, record)
    record = tl.where(word == 3, rank, record)
    record = tl.where(word == 4, matches, record)
    record = tl.where(word == 5, flag, record)
    record = tl.where(word >= 6, 0, record)
    slot = (tick & depth_mask) * max_rows + program
    tl.store(ring_ptr + records_at + slot * 8 + word, record)

    tl.debug_barrier()
    before = tl.atomic_add(ring_ptr + done_at, 1, sem="acq_rel")
    if before == tl.num_programs(0) - 1:
        tl.store(ring_ptr + done_at, 0)
        tl.atomic_xchg(ring_ptr + tick_at, tick + 1, sem="release")


def launch(ring: Ring, place: Place, round_: Verified, kept: DraftLogits) -> None:
    """Record a round as the next tick of the site. Compiles at the first call."""
    layout = place.layout
    rows = round_.requests
    target = round_.target_logits
    mapped = round_.inverse is not None
    trees = kept.trees
    refusal_kernel[(sampled_rows(rows, layout.max_rows),)](
        round_.accept_lens,
        round_.predict,
        round_.drafts,
        target,
        round_.pool_indices,
        kept.first,
        kept.later,
        ring.buffer if trees is None else trees.parents,
        ring.buffer if trees is None else trees.submitted,
        round_.inverse if mapped else ring.buffer,
        ring.buffer,
        target.stride(0),
        target.shape[1],
        round_.inverse.shape[0] if mapped else 0,
        kept.vocabulary,
        0 if trees is None else trees.parents.shape[1],
        rows,
        row_step(rows, layout.max_rows),
        round_.nodes,
        round_.steps,
        kept.rows,
        kept.later.shape[0],
        layout.max_rows,
        layout.depth - 1,
        place.tick,
        place.done,
        place.records,
        TOPK=round_.topk,
        BEAMS=triton.next_power_of_2(round_.topk),
        NODES=triton.next_power_of_2(round_.nodes + 1),
        MAPPED=mapped,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )
