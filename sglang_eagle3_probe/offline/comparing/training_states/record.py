"""What is in a file of a stranger, before any tensor is read: names, shapes, places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.checkpoint.safetensors_file import Entry, read_description
from sglang_eagle3_probe.offline.stored_tensors import load_tensor

FLOATING = frozenset({"F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2"})
WHOLE = frozenset({"BOOL", "U8", "I8", "I16", "I32", "I64"})


@dataclass(frozen=True)
class Stored:
    """A tensor that has not been read: its shape is known, and its size was checked."""

    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it: BF16, I64, ..."""
    load: Callable[[], torch.Tensor] = field(repr=False)
    """Reads it, or raises CheckpointError."""

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATING

    @property
    def whole(self) -> bool:
        return self.dtype in WHOLE


Value: TypeAlias = "Stored | str | int | float | bool | list[Value] | dict[str, Value] | None"
Record: TypeAlias = Mapping[str, Value]


def from_safetensors(path: Path) -> tuple[dict[str, Value], dict[str, str]]:
    """The tensors of a safetensors file by name, and its metadata."""
    entries, metadata = read_description(path, path.name)
    return {name: _stored(path, name, entry) for name, entry in entries.items()}, metadata


def _stored(path: Path, name: str, entry: Entry) -> Stored:
    return Stored(entry.info.shape, entry.info.dtype, lambda: load_tensor(path, name, entry))


def token_ids(record: Record, names: Sequence[str], label: str) -> torch.Tensor:
    """The first of these names as int64 [S]; leading dimensions of 1 are dropped.

    Raises:
        CheckpointError: none is there, or it is no row of whole numbers.
    """
    name = next((name for name in names if name in record), None)
    if name is None:
        raise CheckpointError(
            f"{shown(label)} has no token ids ({', '.join(names)}), so its rows cannot be found "
            "again in the capture. Fix: save the ids beside the states."
        )
    value = record[name]
    if isinstance(value, Stored):
        shape = squeezed(value.shape, 1)
        if value.whole and len(shape) == 1:
            return value.load().reshape(-1).to(torch.int64)
        raise CheckpointError(
            f"{shown(label)}: {name} is {value.dtype} of shape {list(value.shape[:8])}, expected "
            "whole numbers, one a token. Fix: save one sequence a file."
        )
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if isinstance(value, list):
        numbers = [n for n in value if type(n) is int and abs(n) < 1 << 62]
        if len(numbers) == len(value):
            return torch.tensor(numbers, dtype=torch.int64)
    raise CheckpointError(
        f"{shown(label)}: {name} is no list of whole numbers. Fix: save the token ids as a tensor."
    )


def squeezed(shape: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    """A shape without leading ones, as long as more than so many dimensions are left."""
    while len(shape) > dimensions and shape[0] == 1:
        shape = shape[1:]
    return shape
