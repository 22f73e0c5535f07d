"""Files of ``torch.save``, read without unpickling.

A ``.pt`` or ``.ckpt`` is a zip of raw bytes and a small pickle that says how they make tensors. The
pickle's instructions are followed here by hand: containers, numbers, texts, and the one call that
rebuilds a tensor, which becomes a ``Stored``. Any other name it refers to is refused, so nothing in
the file can run, and nothing is allocated by a size that the file merely claims.

Format: zip files of torch 1.6 and later (``torch/serialization.py``); older ones are refused.
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import opened, read_exactly, shown
from sglang_eagle3_probe.offline.comparing.training_states.pickle_steps import (
    Refused,
    TensorCall,
    follow,
)
from sglang_eagle3_probe.offline.comparing.training_states.record import Stored, Value
from sglang_eagle3_probe.offline.stored_tensors import TORCH_DTYPES

PICKLE_LIMIT = 4 << 20
"""Bytes of the instructions; those of a real file have some hundred, or five for each id of a list
of plain numbers."""
DIRECTORY_LIMIT = 4 << 20
TENSOR_LIMIT = 1 << 34
REPEATED = 1 << 26
"""Bytes that a tensor may take beyond those that its file has for it."""
MOST_VALUES = 1_000_000
DEEPEST = 4
END_OF_DIRECTORY = b"PK\x05\x06"
END_OF_DIRECTORY_64 = b"PK\x06\x06"
TAIL = 1 << 17
LOCAL_HEADER = 30

STORAGES = {
    "BoolStorage": "BOOL", "ByteStorage": "U8", "CharStorage": "I8", "ShortStorage": "I16",
    "IntStorage": "I32", "LongStorage": "I64", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "FloatStorage": "F32", "DoubleStorage": "F64",
}  # fmt: skip


@dataclass(frozen=True)
class _Place:
    start: int
    count: int


def read_torch_file(path: Path, *, label: str | None = None) -> Value:
    """What ``torch.save`` was given, tensors not yet read.

    Args:
        label: name for messages, where ``path`` is an unpacked copy.

    Raises:
        CheckpointError: it is no such file, damaged, of an old format, or holds anything else than
            containers, numbers, texts and tensors.
    """
    name = label or str(path)
    with opened(path, name=name) as (file, size):
        places = _places(file, size, name)
        root = next((n[: -len("data.pkl")] for n in places if n.endswith("data.pkl")), None)
        if root is None:
            raise _damaged(name, "is a zip file without data.pkl: not one of torch.save")
        order = places.get(f"{root}byteorder")
        if order is not None and read_exactly(file, order.start, min(order.count, 16)) != b"little":
            raise CheckpointError(
                f"{shown(name)} was written in another byte order. Fix: save it again on a "
                "little-endian machine."
            )
        described = places[f"{root}data.pkl"]
        if described.count > PICKLE_LIMIT:
            raise CheckpointError(
                f"{shown(name)}: its description has {described.count} bytes, expected at most "
                f"{PICKLE_LIMIT}. Fix: save tensors, not Python lists of numbers."
            )
        steps = read_exactly(file, described.start, described.count)
    try:
        found = follow(steps)
    except Refused as error:
        raise CheckpointError(
            f"{shown(name)} {error}; nothing of it was run. Fix: save a dict of tensors and ids."
        ) from None
    return _Reader(path, name, root, places).value(found)


def _places(file: BinaryIO, size: int, name: str) -> dict[str, _Place]:
    """Where each member's bytes lie; every one stored as it is and inside the file."""
    if read_exactly(file, 0, 4) != b"PK\x03\x04":
        raise CheckpointError(
            f"{shown(name)} is no file of torch.save since torch 1.6; older ones are Python "
            "programs and are not read. Fix: load it where you trust it and torch.save it again."
        )
    _check_directory(file, size, name)
    places: dict[str, _Place] = {}
    file.seek(0)
    try:
        # The checks of zipfile on offsets are kept; its unpacking is not used.
        members = zipfile.ZipFile(file).infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, NotImplementedError):
        raise _damaged(name, "is a damaged zip file") from None
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise _damaged(name, "holds compressed members, which torch.save never writes")
        header = read_exactly(file, member.header_offset, LOCAL_HEADER)
        if len(header) < LOCAL_HEADER or header[:4] != b"PK\x03\x04":
            raise _damaged(name, "is a damaged zip file")
        start = member.header_offset + LOCAL_HEADER + sum(struct.unpack("<HH", header[26:30]))
        if start + member.file_size > size:
            raise _damaged(name, f"is cut off inside {shown(member.filename)}")
        places[member.filename] = _Place(start, member.file_size)
    return places


def _check_directory(file: BinaryIO, size: int, name: str) -> None:
    """The zip's directory is read whole, so its size is looked at first."""
    tail = read_exactly(file, max(0, size - TAIL), TAIL)
    at = tail.rfind(END_OF_DIRECTORY)
    if at < 0 or at + 16 > len(tail):
        raise _damaged(name, "is cut off: the zip's directory is not there")
    length = struct.unpack("<I", tail[at + 12 : at + 16])[0]
    large = tail.rfind(END_OF_DIRECTORY_64)
    if large >= 0 and large + 48 <= len(tail):
        length = max(
            length if length != 0xFFFFFFFF else 0,
            struct.unpack("<Q", tail[large + 40 : large + 48])[0],
        )
    if length > DIRECTORY_LIMIT:
        raise _damaged(name, f"has a zip directory of {length} bytes")


def _damaged(name: str, what: str) -> CheckpointError:
    return CheckpointError(f"{shown(name)} {what}. Fix: give a whole file, or save it again.")


class _Reader:
    """Turns what the instructions built into values, tensors not read."""

    def __init__(self, path: Path, name: str, root: str, places: dict[str, _Place]) -> None:
        self.path, self.name, self.root, self.places = path, name, root, places
        self.left = MOST_VALUES

    def value(self, found: Any, depth: int = 0) -> Value:
        """One value; a list that holds another many times over costs as much as if spelt out."""
        if depth > DEEPEST:
            raise CheckpointError(
                f"{shown(self.name)} is nested more than {DEEPEST} deep. Fix: save one flat dict a "
                "sample."
            )
        self.left -= 1 + (len(found) if isinstance(found, (list, tuple, dict)) else 0)
        if self.left < 0:
            raise CheckpointError(
                f"{shown(self.name)} holds more than {MOST_VALUES} values. Fix: save tensors."
            )
        if isinstance(found, TensorCall):
            return self.stored(found)
        if isinstance(found, (list, tuple)):
            if all(type(entry) is int for entry in found):
                return list(found)
            return [self.value(entry, depth + 1) for entry in found]
        if isinstance(found, dict):
            return {str(key): self.value(value, depth + 1) for key, value in found.items()}
        if found is None or isinstance(found, (str, int, float)):
            return found
        raise _damaged(self.name, "has a damaged description")

    def stored(self, call: TensorCall) -> Stored:
        """A tensor's place; its shape fits into the bytes that are there."""
        name, path = self.name, self.path
        dtype = STORAGES.get(call.storage)
        place = self.places.get(f"{self.root}data/{call.key}")
        if dtype is None or place is None:
            what = "is missing" if dtype else f"has the type {shown(call.storage)}, which none has"
            raise _damaged(name, f"refers to a tensor whose data {what}")
        kind = TORCH_DTYPES[dtype]
        reach = 1 + sum((n - 1) * step for n, step in zip(call.shape, call.strides, strict=True))
        count = 0 if 0 in call.shape else reach
        if (call.offset + count) * kind.itemsize > place.count:
            raise _damaged(
                name,
                f"claims a tensor of shape {list(call.shape[:8])} where only {place.count} bytes "
                "are",
            )

        def load() -> torch.Tensor:
            # Strides of 0 repeat elements: more is made than the file has.
            if prod(call.shape) * kind.itemsize > max(min(place.count, TENSOR_LIMIT), REPEATED):
                raise _damaged(name, f"has a tensor of shape {list(call.shape[:8])}, too large")
            if not count:
                return torch.empty(call.shape, dtype=kind)
            start, length = place.start + call.offset * kind.itemsize, count * kind.itemsize
            with opened(path, name=name) as (file, _size):
                data = bytearray(read_exactly(file, start, length))
            if len(data) < length:
                raise _damaged(name, "was cut off while it was read")
            flat = torch.frombuffer(data, dtype=kind)
            return flat.as_strided(call.shape, call.strides).contiguous()

        return Stored(call.shape, dtype, load)
