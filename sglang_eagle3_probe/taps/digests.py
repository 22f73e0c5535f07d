"""Short fingerprints of tensors, for "is this the same on every rank, in every run?"."""

from __future__ import annotations

import hashlib
from typing import Any

from ..trace.records import Tensorprint
from .tensors import dtype_of, shape_of

SAMPLES = 65536


def whole_digest(tensor: Any) -> str:
    """16 hex digits over every value of a small tensor (moved to the CPU as int64)."""
    import torch

    data = tensor.detach().to("cpu", torch.int64).contiguous()
    return hashlib.blake2b(data.numpy().tobytes(), digest_size=8).hexdigest()


def tensorprint(tensor: Any) -> Tensorprint:
    """Shape, dtype and a digest over up to 65 536 evenly spread elements.

    A sample, because an embedding has gigabytes: tensors that differ in a few places can have the
    same digest; ranks or runs that hold different weights do not.
    """
    import torch

    flat = tensor.detach().reshape(-1)
    count = min(SAMPLES, flat.numel())
    index = (
        torch.arange(count, device=flat.device, dtype=torch.int64) * flat.numel() // max(count, 1)
    )
    data = flat[index].cpu().contiguous().view(torch.uint8)
    return Tensorprint(
        shape=shape_of(tensor) or [],
        dtype=dtype_of(tensor),
        digest=hashlib.blake2b(data.numpy().tobytes(), digest_size=8).hexdigest(),
    )
