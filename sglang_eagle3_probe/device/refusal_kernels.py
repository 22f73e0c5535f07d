# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language is untyped. No `from __future__ import annotations` here: Triton reads the
# annotations of its kernels.
"""The Triton kernel that looks at refused drafts; ``refusal_reference`` says what it computes."""

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .layout import row_step, sampled_rows
from .refusals import NOT_SEEN, NOTHING_REFUSED, OUTSIDE, SEEN, UNKNOWN, DraftLogits, Verified
from .ring import Place, Ring

BLOCK = 4096
WARPS = 8

_NOTHING_REFUSED = tl.constexpr(NOTHING_REFUSED)
_UNKNOWN = tl.constexpr(UNKNOWN)
_SEEN = tl.constexpr(SEEN)
_NOT_SEEN = tl.constexpr(NOT_SEEN)
_OUTSIDE = tl.constexpr(OUTSIDE)


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
def _draft_id(token, inverse_ptr, target_width, draft_width, MAPPED: tl.constexpr):
    """Draft id of a target token, -1 where it has none."""
    if MAPPED:
        known = (token >= 0) & (token < target_width)
        found = tl.load(inverse_ptr + token, mask=known, other=-1).to(tl.int32)
    else:
        found = tl.where((token >= 0) & (token < draft_width), token, -1).to(tl.int32)
    return found


@triton.jit(
    do_not_specialize=[
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
    later_ptr,  # [kept_later, kept_rows, draft_width]
    inverse_ptr,
    ring_ptr,
    target_stride,
    target_width,
    inverse_width,
    draft_width,
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
    CHAIN: tl.constexpr,
    MAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (sampled requests,)."""
    place = tl.program_id(0)
    row = place * row_step
    tick = tl.load(ring_ptr + tick_at)
    position = tl.load(accept_lens_ptr + row).to(tl.int32) - 1
    rank = 0
    matches = _UNKNOWN
    flag = _SEEN
    if (position < 0) | (position >= steps):
        position = _NOTHING_REFUSED
    else:
        at = row * nodes + position
        token = tl.load(predict_ptr + at).to(tl.int32)
        flag = _NOT_SEEN
        draft = -1
        usable = position == 0
        if CHAIN:
            draft = tl.load(drafts_ptr + at + 1).to(tl.int32)
            target_row = target_ptr + at.to(tl.int64) * target_stride
            theirs = tl.load(target_row + draft).to(tl.float32)
            matches = tl.where(theirs >= _greatest(target_row, target_width, BLOCK), 1, 0)
            usable = True
        index = tl.load(pool_ptr + row).to(tl.int64)
        logits = first_ptr + index * draft_width
        kept = (index >= 0) & (index < kept_rows)
        if position > 0:
            later_row = (position - 1).to(tl.int64) * kept_rows + row
            logits = later_ptr + later_row * draft_width
            kept = (position <= kept_later) & (row < kept_rows)
        if usable & kept:
            trusted = True
            if CHAIN:
                submitted = _draft_id(draft, inverse_ptr, inverse_width, draft_width, MAPPED)
                mine = tl.load(logits + submitted, mask=submitted >= 0, other=float("-inf"))
                best = _greatest(logits, draft_width, BLOCK)
                trusted = (submitted >= 0) & (mine.to(tl.float32) >= best)
            if trusted:
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
    index = (tick & depth_mask) * max_rows + place
    tl.store(ring_ptr + records_at + index * 8 + word, record)

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
    refusal_kernel[(sampled_rows(rows, layout.max_rows),)](
        round_.accept_lens,
        round_.predict,
        round_.drafts,
        target,
        round_.pool_indices,
        kept.first,
        kept.later,
        round_.inverse if mapped else ring.buffer,
        ring.buffer,
        target.stride(0),
        target.shape[1],
        round_.inverse.shape[0] if mapped else 0,
        kept.vocabulary,
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
        CHAIN=round_.chain,
        MAPPED=mapped,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )
