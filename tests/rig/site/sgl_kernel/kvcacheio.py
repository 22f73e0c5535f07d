"""Transfers between KV cache tiers: only imported (up to 0.5.10.post1), never called on the rig."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sgl_kernel


def __getattr__(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(sgl_kernel, name)
    return found
