"""The header of a safetensors file, and integers of one small tensor. Weights are never read."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, TensorInfo
from sglang_eagle3_probe.checkpoint.files import opened, parse_object, read_exactly, shown

HEADER_LIMIT = 100_000_000
"""The format's own limit."""
VALUES_LIMIT = 4_000_000
"""Entries of a vocabulary map; the largest vocabularies have a fifteenth of this."""
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
INTEGER_CODES = {
    "BOOL": "B", "U8": "B", "I8": "b", "U16": "H", "I16": "h",
    "U32": "I", "I32": "i", "U64": "Q", "I64": "q",
}  # fmt: skip
SHOULD_BE = "Fix: download or export the file again."


@dataclass(frozen=True)
class Entry:
    """A tensor's place in the file."""

    info: TensorInfo
    start: int
    """From the beginning of the file."""
    count: int
    """Bytes."""


def read_header(path: Path, name: str) -> dict[str, Entry]:
    """Every tensor's dtype, shape and place; the header is all that is read."""
    return read_description(path, name)[0]


def read_description(path: Path, name: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """The header as ``read_header`` has it, and the texts under ``__metadata__``."""
    with opened(path) as (file, size):
        length = _header_length(path, file, size)
        data = read_exactly(file, 8, length)
    header = parse_object(data, f"{path} (header)")
    metadata = header.pop("__metadata__", None)
    begin = 8 + length
    entries = {
        tensor: _entry(path, name, tensor, row, begin, size - begin)
        for tensor, row in header.items()
    }
    _no_overlap(path, entries)
    texts = metadata if isinstance(metadata, dict) else {}
    return entries, {key: text for key, text in texts.items() if isinstance(text, str)}


def check_start(path: Path) -> None:
    """Refuse what cannot be a safetensors file by its first eight bytes, such as Git LFS pointers
    and files that are cut off within the header. Cheap enough for every shard of a large target.
    """
    with opened(path) as (file, size):
        _header_length(path, file, size)


def _header_length(path: Path, file: BinaryIO, size: int) -> int:
    if size < 8:
        raise CheckpointError(
            f"{shown(path)} has {size} bytes, expected a safetensors header. {SHOULD_BE}"
        )
    length = int.from_bytes(read_exactly(file, 0, 8), "little")
    if length > HEADER_LIMIT:
        raise CheckpointError(
            f"{shown(path)} says that its header has {length} bytes, expected at most "
            f"{HEADER_LIMIT}; it is damaged or no safetensors file. {SHOULD_BE}"
        )
    if length > size - 8:
        raise CheckpointError(
            f"{shown(path)} says that its header has {length} bytes, but only {size - 8} "
            f"follow: the file is cut off. {SHOULD_BE}"
        )
    return length


def _entry(path: Path, name: str, tensor: str, row: Any, begin: int, room: int) -> Entry:
    def wrong(what: str) -> CheckpointError:
        return CheckpointError(f"{shown(path)}: tensor {shown(tensor)} {what}. {SHOULD_BE}")

    if not isinstance(row, dict):
        raise wrong(f"is described by a {type(row).__name__}, expected an object")
    dtype, shape = row.get("dtype"), _counts(row.get("shape"))
    offsets = _counts(row.get("data_offsets"))
    if not isinstance(dtype, str) or len(dtype) > 32:
        raise wrong("has no dtype")
    if shape is None or len(shape) > 64:
        raise wrong("has no valid shape, expected a list of sizes")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong("has no valid data_offsets, expected [start, end]")
    if offsets[1] > room:
        raise wrong(f"ends at byte {offsets[1]} of the data, but the file holds {room}: cut off")
    bits = BITS.get(dtype)
    held = offsets[1] - offsets[0]
    if bits is not None and prod(shape) * bits != held * 8:
        raise wrong(
            f"of {dtype} and shape {list(shape[:8])} does not fill the {held} bytes it is given"
        )
    info = TensorInfo(dtype, shape, name)
    return Entry(info, begin + offsets[0], held)


def _counts(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    for n in value:
        if type(n) is not int or not 0 <= n < 1 << 62:
            return None
    return tuple(value)


def _no_overlap(path: Path, entries: dict[str, Entry]) -> None:
    end, before = 0, ""
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].count)):
        if entry.count and entry.start < end:
            raise CheckpointError(
                f"{shown(path)}: tensors {shown(before)} and {shown(name)} share bytes. {SHOULD_BE}"
            )
        if entry.count:
            end, before = entry.start + entry.count, name


def read_integers(path: Path, entry: Entry) -> array[int] | str:
    """Values of an integer or boolean tensor, or why they were not read."""
    code = INTEGER_CODES.get(entry.info.dtype)
    if code is None:
        return f"its dtype is {shown(entry.info.dtype)}, expected whole numbers"
    values = array(code)
    if entry.count > VALUES_LIMIT * values.itemsize:
        return f"it has {entry.count // values.itemsize} entries, no vocabulary is that large"
    if values.itemsize * 8 != BITS[entry.info.dtype]:  # pragma: no cover - no such platform known
        return "this platform's integers have another size"
    with opened(path) as (file, _size):
        data = read_exactly(file, entry.start, entry.count)
    values.frombytes(data[: len(data) - len(data) % values.itemsize])
    if sys.byteorder == "big":  # pragma: no cover
        values.byteswap()
    return values


def where_set(values: Iterable[int]) -> tuple[int, ...]:
    """Indices of what is not zero."""
    return tuple(index for index, value in enumerate(values) if value)
