"""Tensors out of safetensors files of strangers: sizes are checked before anything is allocated."""

from __future__ import annotations

from pathlib import Path

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import opened, read_exactly, shown
from sglang_eagle3_probe.checkpoint.safetensors_file import Entry

TORCH_DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""Safetensors' names of dtypes that can be computed with here."""


def load_tensor(path: Path, name: str, entry: Entry, *, limit_bytes: int = 1 << 34) -> torch.Tensor:
    """One tensor of a file whose header was read with ``read_header`` (which checked its size).

    Raises:
        CheckpointError: its dtype is not one of ``TORCH_DTYPES``, it is larger than
            ``limit_bytes``, or the file ends early.
    """
    dtype = TORCH_DTYPES.get(entry.info.dtype)
    if dtype is None:
        raise CheckpointError(
            f"{shown(path)}: tensor {shown(name)} is {shown(entry.info.dtype)}, expected one of "
            f"{', '.join(TORCH_DTYPES)}. Fix: export it in one of these."
        )
    if entry.count > limit_bytes:
        raise CheckpointError(
            f"{shown(path)}: tensor {shown(name)} has {entry.count} bytes, more than the "
            f"{limit_bytes} that are read at most. Fix: give a smaller file."
        )
    data = bytearray(entry.count)
    with opened(path) as (file, _size):
        file.seek(entry.start)
        view, done = memoryview(data), 0
        while done < entry.count:
            # FileIO.readinto fills what it is given; only its static type does not say so.
            count = file.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise CheckpointError(
                    f"{shown(path)} ends inside tensor {shown(name)}: it was cut off while it was "
                    "read. Fix: give a whole file."
                )
            done += count
    if not entry.count:
        return torch.empty(entry.info.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(entry.info.shape)


def load_rows(path: Path, name: str, entry: Entry, rows: torch.Tensor) -> torch.Tensor:
    """Some rows of a matrix, without reading the others.

    Args:
        rows: int64 [n].

    Returns:
        [n, width] in the stored dtype.

    Raises:
        CheckpointError: it is no matrix, of a dtype that is not read, or has no such row.
    """
    dtype = TORCH_DTYPES.get(entry.info.dtype)
    if dtype is None or len(entry.info.shape) != 2:
        raise CheckpointError(
            f"{shown(path)}: {shown(name)} is {shown(entry.info.dtype)} "
            f"{list(entry.info.shape[:8])}, expected a matrix of one of {', '.join(TORCH_DTYPES)}. "
            "Fix: export it in one of these."
        )
    count, width = entry.info.shape
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise CheckpointError(
            f"{shown(path)}: {shown(name)} has {count} rows, asked for {int(rows.min())} to "
            f"{int(rows.max())}. Fix: give the target and the draft that belong to these token ids."
        )
    result = torch.empty((len(rows), width), dtype=dtype)
    size = width * dtype.itemsize
    with opened(path) as (file, _size):
        for index, row in enumerate(rows.tolist()):
            data = read_exactly(file, entry.start + row * size, size)
            if len(data) < size:
                raise CheckpointError(
                    f"{shown(path)} ends inside tensor {shown(name)}: it was cut off while it was "
                    "read. Fix: give a whole file."
                )
            result[index] = torch.frombuffer(bytearray(data), dtype=dtype)
    return result
