"""Facts about tensors that cost no device work."""

from __future__ import annotations

import sys
from typing import Any


def shape_of(tensor: Any) -> list[int] | None:
    """Sizes as plain integers, or ``None`` for anything without a shape."""
    shape = getattr(tensor, "shape", None)
    return None if shape is None else [int(size) for size in shape]


def dtype_of(tensor: Any) -> str:
    """``float32``, ``bfloat16``, ..."""
    return str(getattr(tensor, "dtype", "")).removeprefix("torch.")


def device_of(tensor: Any) -> str:
    """``cpu``, ``cuda``, ..."""
    return str(getattr(getattr(tensor, "device", None), "type", ""))


def is_capturing(tensor: Any) -> bool:
    """Whether a CUDA graph is being captured on the current stream."""
    if device_of(tensor) != "cuda":
        return False
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def mode_name(mode: Any) -> str:
    """Name of an SGLang enum member (ForwardMode, CaptureHiddenMode), or an empty text."""
    return str(getattr(mode, "name", "") or "")


def mode_is(mode: Any, predicate: str) -> bool:
    """Ask an SGLang mode ``is_...()``; a predicate that this release lacks is false."""
    method = getattr(mode, predicate, None)
    return bool(method()) if callable(method) else False
