"""What a record in the ring looks like, and how to read it back. Needs numpy only.

A *tick* is one launch of a tap. It writes one record of 8 int32 words per sampled row and slot; a
slot is one of the equally wide pieces of a row, such as one aux hidden state of a concatenation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECORD_WORDS = 8

RECORD_DTYPE = np.dtype(
    [
        ("tag", "<u4"),  # tick + 1 modulo 2**32; 0 = never written
        ("rows", "<i4"),  # rows of the launch, before sampling, CUDA graph padding included
        ("mean", "<f4"),  # over the finite values; 0 when there are none
        ("rms", "<f4"),  # sqrt(sum of squares / finite values); inf when float32 sums overflow
        ("absmax", "<f4"),  # over the finite values
        ("nonfinite", "<i4"),  # NaN and infinite values
        ("fingerprint_a", "<u4"),
        ("fingerprint_b", "<u4"),
    ]
)
"""The eight words as fields; ``RECORD_DTYPE.itemsize`` is 32 bytes."""


@dataclass(frozen=True)
class Mix:
    """Constants of one 32-bit fingerprint.

    The fingerprint of a piece is the sum modulo 2**32, over its columns, of

        x = bits * value_factor + column * column_factor + seed
        x ^= x >> shifts[0]; x *= factors[0]; x ^= x >> shifts[1]; x *= factors[1]
        x ^= x >> shifts[2]

    ``bits`` are the value's own 16 or 32 bits, ``column`` counts from the start of the slot. A sum
    does not depend on its order, so block sizes, ranks and devices agree bit for bit. Every step is
    a bijection of 32-bit words, so a change of one single value always shows.
    """

    value_factor: int
    column_factor: int
    seed: int
    shifts: tuple[int, int, int]
    factors: tuple[int, int]


MIX_A = Mix(0x9E3779B1, 0x85EBCA77, 0x165667B1, (16, 13, 16), (0x85EBCA6B, 0xC2B2AE35))
"""MurmurHash3's finaliser."""

MIX_B = Mix(0xC2B2AE3D, 0x27D4EB2F, 0x5BD1E995, (16, 15, 16), (0x7FEB352D, 0x846CA68B))
"""The 'lowbias32' finaliser."""


@dataclass(frozen=True)
class SiteLayout:
    """One tapped place: its name and the shape of its region, [depth, max_rows, slots, 8] words.

    ``depth`` is a power of two, so that ``tick % depth`` stays right when the device's 32-bit tick
    wraps around. A ring of depth d gives back at most the last d - 1 ticks.
    """

    name: str
    slots: int
    max_rows: int
    depth: int

    def __post_init__(self) -> None:
        if self.slots < 1 or self.max_rows < 1:
            raise ValueError(f"site {self.name}: slots and max_rows must be at least 1")
        if self.depth < 2 or self.depth & (self.depth - 1):
            raise ValueError(f"site {self.name}: depth must be a power of two, at least 2")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[depth, max_rows, slots, 8]."""
        return (self.depth, self.max_rows, self.slots, RECORD_WORDS)

    @property
    def words(self) -> int:
        """int32 words of the region."""
        return self.depth * self.max_rows * self.slots * RECORD_WORDS


def row_step(rows: int, max_rows: int) -> int:
    """Sampled row i is input row ``i * row_step``; 1 when every row fits."""
    return max(1, -(-rows // max_rows))


def sampled_rows(rows: int, max_rows: int) -> int:
    """Rows that a launch over ``rows`` rows writes; at most ``max_rows``."""
    return -(-rows // row_step(rows, max_rows))


def decode(words: NDArray[np.int32]) -> NDArray[Any]:
    """View int32 words [..., 8] as an array [...] of ``RECORD_DTYPE``."""
    if words.shape[-1:] != (RECORD_WORDS,):
        raise ValueError(f"expected [..., {RECORD_WORDS}] words, got shape {words.shape}")
    flat: NDArray[Any] = np.ascontiguousarray(words, dtype="<i4").view(RECORD_DTYPE)
    return flat[..., 0]
