"""Writes one piece of a captured request. Called on a thread of its own, never a scheduler's."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .layout import METADATA_KEY, PieceInfo, shape_fault

if TYPE_CHECKING:
    import torch


def piece_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """Bytes that the piece's tensors take on disk; the description adds about a thousand."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def write_piece(path: Path, info: PieceInfo, tensors: Mapping[str, torch.Tensor]) -> int:
    """Writes a piece, mode 0600, whole or not at all. Returns the bytes written.

    Args:
        tensors: name -> tensor on the CPU, as ``layout`` describes them.

    Raises:
        ValueError: a tensor is missing or has another shape than the description says, or two
            share memory; nothing stays.
        OSError: the file cannot be written; nothing of it stays.
    """
    fault = shape_fault(info, {name: tuple(t.shape) for name, t in tensors.items()})
    if fault is not None:
        raise ValueError(f"piece {info.piece} of request {info.request} {fault}")
    unfinished = path.with_suffix(".part")
    try:
        # Made first, so that the states are never readable by others, not even while written.
        os.close(os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        _save(unfinished, info, {name: t.contiguous() for name, t in tensors.items()})
        os.chmod(unfinished, 0o600)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    return path.stat().st_size


def _save(path: Path, info: PieceInfo, tensors: Mapping[str, torch.Tensor]) -> None:
    """``save_file``, with its errors (0.4 to 0.8) as built-in ones."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    description = {METADATA_KEY: msgspec.json.encode(info).decode()}
    try:
        save_file(dict(tensors), path, metadata=description)
    except RuntimeError as error:
        if "share memory" not in str(error):
            raise
        raise ValueError(
            f"piece {info.piece} of request {info.request} has tensors that share memory"
        ) from error
    except SafetensorError as error:
        # A full disk and the like come as text.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
