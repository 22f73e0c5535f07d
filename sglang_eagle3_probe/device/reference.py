"""The kernel's twin in plain torch: same ring, same ticks, same records.

Fingerprints and counts agree bit for bit, floats within the rounding of float32 sums. It serves
tensors on the CPU, and the tests of the kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from .layout import MIX_A, MIX_B, RECORD_WORDS, Mix, row_step, sampled_rows
from .ring import Place, Ring

WORD = 0xFFFFFFFF
BITS_OF = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


def _times(x: Any, factor: int) -> Any:
    """``x * factor`` modulo 2**32 for int64 tensors of 32-bit values, without int64 overflow."""
    low = x * (factor & 0xFFFF)
    high = (x * (factor >> 16)) & 0xFFFF
    return (low + (high << 16)) & WORD


def fingerprint(bits: Any, mix: Mix) -> Any:
    """Fingerprints, int64 [...] of 32-bit values, of pieces given by their bits, int64 [..., w]."""
    column = torch.arange(bits.shape[-1], dtype=torch.int64, device=bits.device)
    x = _times(bits, mix.value_factor) + _times(column, mix.column_factor) + mix.seed
    x = x & WORD
    x = _times(x ^ (x >> mix.shifts[0]), mix.factors[0])
    x = _times(x ^ (x >> mix.shifts[1]), mix.factors[1])
    x = x ^ (x >> mix.shifts[2])
    return x.sum(-1) & WORD


def _signed(x: Any) -> Any:
    """int64 tensor of 32-bit values -> int32 with the same bits."""
    return torch.where(x > 0x7FFFFFFF, x - (WORD + 1), x).to(torch.int32)


def measure(pieces: Any) -> Any:
    """Words 2 to 7 of the records, int32 [..., 6], of float pieces [..., width]."""
    integers = BITS_OF[pieces.dtype]
    bits = pieces.contiguous().view(integers).to(torch.int64)
    bits = bits & (0xFFFF if integers is torch.int16 else WORD)
    finite = torch.isfinite(pieces)
    values = torch.where(finite, pieces.to(torch.float32), 0.0)
    bad = (~finite).sum(-1)
    good = (pieces.shape[-1] - bad).clamp(min=1).to(torch.float32)
    floats = torch.stack(
        [
            values.sum(-1) / good,
            ((values * values).sum(-1) / good).sqrt(),
            values.abs().amax(-1),
        ],
        dim=-1,
    )
    prints = torch.stack([fingerprint(bits, MIX_A), fingerprint(bits, MIX_B)], dim=-1)
    return torch.cat(
        [floats.view(torch.int32), bad.to(torch.int32).unsqueeze(-1), _signed(prints)], dim=-1
    )


def record(ring: Ring, place: Place, tensor: Any) -> None:
    """Record ``tensor``, [rows, slots * width], as the next tick of the site."""
    layout = place.layout
    rows = int(tensor.shape[0])
    step = row_step(rows, layout.max_rows)
    sampled = sampled_rows(rows, layout.max_rows)
    tick = int(ring.buffer[place.tick]) & WORD
    pieces = tensor.detach()[::step].unflatten(1, (layout.slots, -1))
    words = torch.empty((sampled, layout.slots, RECORD_WORDS), dtype=torch.int32)
    following = torch.tensor((tick + 1) & WORD, dtype=torch.int64)
    words[..., 0] = _signed(following)
    words[..., 1] = rows
    words[..., 2:] = measure(pieces)
    start = place.records + (tick % layout.depth) * layout.max_rows * layout.slots * RECORD_WORDS
    ring.buffer[start : start + words.numel()] = words.flatten()
    ring.buffer[place.tick] = _signed(following)
