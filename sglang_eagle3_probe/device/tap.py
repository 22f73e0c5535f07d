"""Record a tensor: the kernel for CUDA tensors, its twin for the rest.

Called inside the host's forward passes, on the thread that launches them, also while they are
captured into a CUDA graph: nothing here allocates on the device, waits for it, or branches on data.
What cannot be recorded is left alone and counted in ``ring.skipped``.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import torch

from . import reference
from .layout import SiteLayout
from .ring import Ring

MAX_WIDTH = 65536
MAX_STRIDE = 2**31 - 1

DEVICE = "device"
"""The tensor lives elsewhere than the ring, or on no real device."""
DTYPE = "dtype"
"""Not bf16, fp16 or fp32."""
SHAPE = "shape"
"""Not two-dimensional, or wider than MAX_WIDTH values a slot."""
EMPTY = "empty"
SLOTS = "slots"
"""The columns do not divide into the site's slots."""
STRIDES = "strides"
"""The last dimension is not contiguous, or rows are too far apart."""
NO_TRITON = "no_triton"
NOT_COMPILED = "not_compiled"
"""First seen while a CUDA graph is captured; compiling then would kill the capture."""

_kernels: list[ModuleType] = []


def kernels() -> ModuleType | None:
    """The module with the kernel, or None where Triton is not installed."""
    if not _kernels and importlib.util.find_spec("triton") is not None:
        from . import kernels as found

        _kernels.append(found)
    return _kernels[0] if _kernels else None


def unfit(ring: Ring, site_index: int, tensor: Any) -> str | None:
    """Why the tensor cannot be recorded at this site, or None."""
    slots = ring.sites[site_index].slots
    if tensor.device != ring.device:
        return DEVICE
    if tensor.dtype not in reference.BITS_OF:
        return DTYPE
    if tensor.dim() != 2 or tensor.shape[1] > MAX_WIDTH * slots:
        return SHAPE
    if tensor.numel() == 0:
        return EMPTY
    if tensor.shape[1] % slots:
        return SLOTS
    if (tensor.shape[1] > 1 and tensor.stride(1) != 1) or tensor.stride(0) > MAX_STRIDE:
        return STRIDES
    return None


def record(ring: Ring, site_index: int, tensor: Any) -> bool:
    """Record ``tensor``, float [rows, slots * width], as the next tick of the site.

    Returns False, and counts why, when it cannot.
    """
    if torch.compiler.is_compiling():
        return False  # a tap must not become part of what torch.compile traces
    reason = unfit(ring, site_index, tensor)
    if reason is not None:
        ring.skip(site_index, reason)
        return False
    place = ring.places[site_index]
    if not tensor.is_cuda:
        reference.record(ring, place, tensor)
        return True
    module = kernels()
    if module is None:
        ring.skip(site_index, NO_TRITON)
        return False
    if torch.cuda.is_current_stream_capturing():
        width = tensor.shape[1] // place.layout.slots
        key = module.specialisation(tensor, width, tensor.stride(0))
        if not module.is_ready(key):
            ring.skip(site_index, NOT_COMPILED)
            return False
    module.launch(ring, place, tensor)
    return True


def warm_up(ring: Ring, dtype: Any, width: int, *, slots: int = 1) -> bool:
    """Compile the kernel for contiguous [rows, slots * width] tensors on the ring's device.

    Launches it once on a scratch ring, since only a launch also loads the code onto the device.
    Allocates: call it at start-up. Returns False when there is nothing to compile here or a
    capture is going on. Tensors whose rows are not 16-byte aligned are compiled separately.
    """
    if ring.device.type != "cuda" or kernels() is None or torch.cuda.is_current_stream_capturing():
        return False
    scratch = Ring([SiteLayout("warm-up", slots=slots, max_rows=1, depth=2)], ring.device)
    tensor = torch.zeros((1, slots * width), dtype=dtype, device=ring.device)
    return record(scratch, 0, tensor)
