"""Moving rows of the KV cache of all layers, given raw buffer addresses."""

from __future__ import annotations

import ctypes

import torch


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor,
    strides: torch.Tensor,
    tgt_loc: torch.Tensor,
    src_loc: torch.Tensor,
) -> None:
    """Copies row ``src_loc[i]`` over row ``tgt_loc[i]`` in every buffer.

    data_ptrs (buffers,) start addresses, strides (buffers,) bytes per row, tgt_loc and src_loc
    (N,). All sources are read before any target is written, so the two may overlap.
    Call site: ``copy_all_layer_kv_cache_func``, which moves the accepted path of a tree to
    consecutive rows.
    """
    if tgt_loc.numel() == 0:
        return
    source, target = src_loc.long(), tgt_loc.long()
    rows = int(torch.maximum(source.max(), target.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, stride)
        buffer[target] = buffer[source]
