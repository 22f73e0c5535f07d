"""The hash that turns a request's sampling seed into random numbers."""

from __future__ import annotations

import torch

_WORD = 0xFFFFFFFF


def _rotate(value: torch.Tensor, bits: int) -> torch.Tensor:
    return ((value << bits) | (value >> (32 - bits))) & _WORD


def _mix(state: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    word = (word * 0xCC9E2D51) & _WORD
    word = (_rotate(word, 15) * 0x1B873593) & _WORD
    return (_rotate(state ^ word, 13) * 5 + 0xE6546B64) & _WORD


def murmur_hash32_cpu(
    seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor
) -> torch.Tensor:
    """MurmurHash3 (32 bit, seed 0) of the 16 bytes seed low, seed high, position, column.

    seed and positions (rows,), col_indices (columns,). Returns (rows, columns) uint32.
    Call site: ``kernels/ops/sampling/murmur_hash.py``. Products wrap around in int64, which
    leaves their low 32 bits right.
    """
    wide = seed.view(torch.int64) if seed.dtype == torch.uint64 else seed.long()
    rows = positions.view(torch.int64) if positions.dtype == torch.uint64 else positions.long()
    state = torch.zeros(wide.shape[0], 1, dtype=torch.int64)
    for word in (wide, wide >> 32, rows):
        state = _mix(state, (word & _WORD)[:, None])
    state = _mix(state, (col_indices.long() & _WORD)[None]) ^ 16
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _WORD
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _WORD
    return (state ^ (state >> 16)).to(torch.uint32)
