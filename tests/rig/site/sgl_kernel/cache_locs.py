"""Reading and writing the table ``req_to_token`` (request slot, position) -> KV cache row.

Shapes: B requests; ``req_pool_indices`` (B,) names each request's row of ``req_to_token``
(slots, pool_len) int32; offsets and lengths are (B,) integers.
"""

from __future__ import annotations

import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Writes newly allocated cache rows at positions [start, end) of each request.

    ``out_cache_loc`` (sum of lengths,) holds the rows, request after request.
    Call site: ``mem_cache/allocation.py``, ``assign_req_to_token_pool_func``.
    """
    taken = 0
    for slot, start, end in _spans(req_pool_indices, start_offset, end_offset):
        count = end - start
        req_to_token[slot, start:end] = out_cache_loc[taken : taken + count].to(req_to_token.dtype)
        taken += count


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Reads the cache rows of positions [start, end) of each request into ``out_cache_loc``.

    The inverse of :func:`assign_req_to_token_pool_cpu`. Call site:
    ``kernels/ops/speculative/cache_locs.py``, before verification and after acceptance.
    """
    taken = 0
    for slot, start, end in _spans(req_pool_indices, start_offset, end_offset):
        count = end - start
        out_cache_loc[taken : taken + count] = req_to_token[slot, start:end]
        taken += count


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Reads the ``topk * num_steps`` rows behind each sequence, where the draft writes.

    ``out_cache_loc`` (B * topk * num_steps,). Call site:
    ``assign_draft_cache_locs_contiguous_func``.
    """
    width = topk * num_steps
    columns = seq_lens.long()[:, None] + torch.arange(width)[None]
    rows = req_to_token[req_pool_indices.long()[:, None], columns]
    out_cache_loc.copy_(rows.reshape(-1))


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """One table row per draft branch: the sequence's rows, then the branch's own rows.

    Branch j of a request uses the ``num_steps`` rows that start ``j * num_steps`` behind the
    sequence (the layout of :func:`assign_draft_cache_locs_contiguous_cpu`). Returns
    (B * topk, pool_len). Call site: ``IntelAMXMultiStepDraftBackend.init_forward_metadata``.
    """
    batch = seq_lens.shape[0]
    table = torch.zeros((batch * topk, pool_len), dtype=req_to_token.dtype)
    slots = req_pool_indices.tolist()
    for request, (slot, length) in enumerate(zip(slots, seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            row = table[request * topk + branch]
            row[:length] = req_to_token[slot, :length]
            start = length + branch * num_steps
            row[length : length + num_steps] = req_to_token[slot, start : start + num_steps]
    return table


def _spans(
    req_pool_indices: torch.Tensor, start_offset: torch.Tensor, end_offset: torch.Tensor
) -> list[tuple[int, int, int]]:
    return list(
        zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    )
