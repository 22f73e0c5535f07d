# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language is untyped. No `from __future__ import annotations` here: Triton reads the
# annotations of its kernels.
"""The Triton kernel: one launch reduces every sampled row and slot of a tensor to a record.

A launch recorded in a CUDA graph bakes its arguments, so whatever changes from replay to replay
lives on the device: every program reads the site's tick, and the last one to finish advances it.
"""

from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .layout import MIX_A, MIX_B, row_step, sampled_rows
from .ring import Place, Ring

EXPONENT_BITS = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00, torch.float32: 0x7F800000}
"""The exponent field of each dtype that the kernel takes; all ones means NaN or infinite."""

MAX_BLOCK = 8192

A_VALUE = tl.constexpr(MIX_A.value_factor)
A_COLUMN = tl.constexpr(MIX_A.column_factor)
A_SEED = tl.constexpr(MIX_A.seed)
A_SHIFT_0 = tl.constexpr(MIX_A.shifts[0])
A_SHIFT_1 = tl.constexpr(MIX_A.shifts[1])
A_SHIFT_2 = tl.constexpr(MIX_A.shifts[2])
A_FACTOR_0 = tl.constexpr(MIX_A.factors[0])
A_FACTOR_1 = tl.constexpr(MIX_A.factors[1])
B_VALUE = tl.constexpr(MIX_B.value_factor)
B_COLUMN = tl.constexpr(MIX_B.column_factor)
B_SEED = tl.constexpr(MIX_B.seed)
B_SHIFT_0 = tl.constexpr(MIX_B.shifts[0])
B_SHIFT_1 = tl.constexpr(MIX_B.shifts[1])
B_SHIFT_2 = tl.constexpr(MIX_B.shifts[2])
B_FACTOR_0 = tl.constexpr(MIX_B.factors[0])
B_FACTOR_1 = tl.constexpr(MIX_B.factors[1])


@triton.jit
def _mix_a(bits, column):
    """Term of fingerprint A; uint32 in, uint32 out."""
    x = bits * A_VALUE + column * A_COLUMN + A_SEED
    x ^= x >> A_SHIFT_0
    x *= A_FACTOR_0
    x ^= x >> A_SHIFT_1
    x *= A_FACTOR_1
    return x ^ (x >> A_SHIFT_2)


@triton.jit
def _mix_b(bits, column):
    """Term of fingerprint B; uint32 in, uint32 out."""
    x = bits * B_VALUE + column * B_COLUMN + B_SEED
    x ^= x >> B_SHIFT_0
    x *= B_FACTOR_0
    x ^= x >> B_SHIFT_1
    x *= B_FACTOR_1
    return x ^ (x >> B_SHIFT_2)


@triton.jit(
    # Left alone, Triton compiles again for a 1 and for multiples of 16 in each of these.
    do_not_specialize=[
        "rows",
        "row_step",
        "slots",
        "max_rows",
        "depth_mask",
        "tick_at",
        "done_at",
        "records_at",
    ]
)
def record_kernel(
    x_ptr,  # [rows, slots * WIDTH], bf16, fp16 or fp32, last dimension contiguous
    ring_ptr,  # the whole ring, int32
    row_stride,  # elements between rows of x
    rows,  # rows of x
    row_step,  # sampled row i is row i * row_step of x
    slots,
    max_rows,
    depth_mask,  # depth - 1
    tick_at,  # int32 words from ring_ptr
    done_at,
    records_at,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    EXPONENT: tl.constexpr,
    HALF: tl.constexpr,  # values of 16 bits
):
    """Grid (sampled rows, slots). One program reduces one piece of WIDTH values."""
    row = tl.program_id(0)
    slot = tl.program_id(1)
    tick = tl.load(ring_ptr + tick_at)
    # 64 bits: a prefill of many rows can pass 2**31 elements.
    piece_ptr = x_ptr + (row * row_step).to(tl.int64) * row_stride + slot * WIDTH

    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.zeros([BLOCK], dtype=tl.float32)
    nonfinite = tl.zeros([BLOCK], dtype=tl.int32)
    sum_a = tl.zeros([BLOCK], dtype=tl.uint32)
    sum_b = tl.zeros([BLOCK], dtype=tl.uint32)
    for start in tl.static_range(0, WIDTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < WIDTH
        value = tl.load(piece_ptr + column, mask=inside, other=0.0)
        if HALF:
            bits = value.to(tl.uint16, bitcast=True).to(tl.uint32)
        else:
            bits = value.to(tl.uint32, bitcast=True)
        # By the bits: float comparisons may be optimised on the assumption that there is no NaN.
        finite = (bits & EXPONENT) != EXPONENT
        value = tl.where(finite, value.to(tl.float32), 0.0)
        total += value
        squares += value * value
        largest = tl.maximum(largest, tl.abs(value))
        nonfinite += tl.where(finite, 0, 1)
        place = column.to(tl.uint32)
        sum_a += tl.where(inside, _mix_a(bits, place), 0)
        sum_b += tl.where(inside, _mix_b(bits, place), 0)

    bad = tl.sum(nonfinite, axis=0)
    good = tl.maximum(WIDTH - bad, 1).to(tl.float32)
    mean = tl.sum(total, axis=0) / good
    rms = tl.sqrt(tl.sum(squares, axis=0) / good)
    absmax = tl.max(largest, axis=0)
    print_a = tl.sum(sum_a, axis=0).to(tl.uint32).to(tl.int32, bitcast=True)
    print_b = tl.sum(sum_b, axis=0).to(tl.uint32).to(tl.int32, bitcast=True)

    # All eight words in one store of eight neighbouring lanes: one 32-byte sector, so that a copy
    # made meanwhile sees the old record or the new one, and word 0 says which.
    word = tl.arange(0, 8)
    record = tl.where(word == 0, tick + 1, rows)
    record = tl.where(word == 2, mean.to(tl.int32, bitcast=True), record)
    record = tl.where(word == 3, rms.to(tl.int32, bitcast=True), record)
    record = tl.where(word == 4, absmax.to(tl.int32, bitcast=True), record)
    record = tl.where(word == 5, bad, record)
    record = tl.where(word == 6, print_a, record)
    record = tl.where(word == 7, print_b, record)
    index = ((tick & depth_mask) * max_rows + row) * slots + slot
    tl.store(ring_ptr + records_at + index * 8 + word, record)

    # The barrier orders the stores of all threads before the atomic of one of them; the atomic
    # orders this program before the one that advances the tick.
    tl.debug_barrier()
    before = tl.atomic_add(ring_ptr + done_at, 1, sem="acq_rel")
    if before == tl.num_programs(0) * tl.num_programs(1) - 1:
        # Nobody else is left to touch the counters before the next launch of this site.
        tl.store(ring_ptr + done_at, 0)
        tl.atomic_xchg(ring_ptr + tick_at, tick + 1, sem="release")


def block_of(width: int) -> tuple[int, int]:
    """(BLOCK, num_warps) for pieces of ``width`` values: about 16 values a thread.

    Fixed rather than autotuned: tuning launches and synchronises, which kills a capture.
    """
    block = min(MAX_BLOCK, max(64, 1 << (width - 1).bit_length()))
    return block, max(1, min(16, block // 512))


Specialisation = tuple[Any, Any, int, bool, bool, bool]

_launched: set[Specialisation] = set()


def specialisation(tensor: Any, width: int, row_stride: int) -> Specialisation:
    """What Triton compiles (and loads, per device) separately for a launch on ``tensor``."""
    return (
        tensor.device,
        tensor.dtype,
        width,
        tensor.data_ptr() % 16 == 0,
        row_stride % 16 == 0,
        row_stride == 1,
    )


def is_ready(key: Specialisation) -> bool:
    """Whether a launch compiles nothing, and so is safe under capture."""
    return key in _launched


def launch(ring: Ring, place: Place, tensor: Any) -> None:
    """Record ``tensor``, [rows, slots * width], as the next tick of the site.

    Allocates nothing and waits for nothing, unless the specialisation is still to be compiled.
    """
    layout = place.layout
    rows, columns = tensor.shape
    width = columns // layout.slots
    row_stride = tensor.stride(0)
    block, warps = block_of(width)
    step = row_step(rows, layout.max_rows)
    record_kernel[(sampled_rows(rows, layout.max_rows), layout.slots)](
        tensor,
        ring.buffer,
        row_stride,
        rows,
        step,
        layout.slots,
        layout.max_rows,
        layout.depth - 1,
        place.tick,
        place.done,
        place.records,
        WIDTH=width,
        BLOCK=block,
        EXPONENT=EXPONENT_BITS[tensor.dtype],
        HALF=tensor.element_size() == 2,
        num_warps=warps,
    )
    _launched.add(specialisation(tensor, width, row_stride))
