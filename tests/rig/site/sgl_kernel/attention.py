"""Attention over a paged KV cache, as SGLang's ``intel_amx`` attention back end calls it.

One token of KV cache is one row of ``k_buffer`` / ``v_buffer``; ``req_to_token[r, p]`` names
the row that holds position ``p`` of request slot ``r``. With multi-head latent attention the
value buffer is a view of the first columns of the key buffer.

Notation: B requests, T tokens of all requests together, Q query tokens of one request,
K key positions, H query heads, G key/value heads (H is a multiple of G), D head width of
queries and keys, V head width of values.
"""

from __future__ import annotations

import torch


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Softmax attention in float32.

    query (B, Q, H, D), key (B, K, G, D), value (B, K, G, V), visible (B, Q, K) bool,
    sinks (H,) or None. Returns (B, Q, H, V).
    """
    batch, queries, heads, width = query.shape
    groups = key.shape[2]
    shared = heads // groups
    grouped = query.float().view(batch, queries, groups, shared, width).permute(0, 2, 3, 1, 4)
    flat = grouped.reshape(batch, groups, shared * queries, width)
    scores = torch.matmul(flat, key.float().permute(0, 2, 3, 1)) * sm_scale
    if logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores.view(batch, groups, shared, queries, -1)
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    if sinks is not None:
        sink = sinks.float().view(1, groups, shared, 1, 1).expand(batch, -1, -1, queries, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    flat = weights.reshape(batch, groups, shared * queries, -1)
    out = torch.matmul(flat, value.float().transpose(1, 2))
    out = out.view(batch, groups, shared, queries, -1).permute(0, 3, 1, 2, 4)
    return out.reshape(batch, queries, heads, value.shape[-1])


def _within_window(distance: torch.Tensor, sliding_window: int) -> torch.Tensor:
    """Whether a key ``distance`` positions back is in the window (0 means no window)."""
    return distance < sliding_window if sliding_window > 0 else torch.ones_like(distance).bool()


def _refuse(is_cross_attn: bool, k_scale: float, v_scale: float) -> None:
    if is_cross_attn:
        raise NotImplementedError("the CPU rig has no cross attention")
    if k_scale != 1.0 or v_scale != 1.0:
        raise NotImplementedError("the CPU rig has no scaled (fp8) KV cache")


def decode_attention_cpu(
    q: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    o: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    loc: torch.Tensor | None,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """One query token per request: writes its key and value, then attends to ``seq_lens`` rows.

    q (B, H, D); k (B, G, D) and v (B, G, V) go to rows ``loc`` (B,) of the buffers; o (B, H, V)
    is the result. ``attn_logits`` is scratch space of the compiled kernel, unused here.
    Call site: ``IntelAMXAttnBackend.forward_decode``.
    """
    _refuse(is_cross_attn, k_scale, v_scale)
    if k is not None and v is not None and loc is not None:
        k_buffer[loc] = k.reshape(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc] = v.reshape(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    longest = int(seq_lens.max())
    positions = torch.arange(longest)
    visible = positions[None] < seq_lens[:, None]
    distance = seq_lens[:, None] - 1 - positions[None]
    visible &= _within_window(distance, sliding_window)
    rows = req_to_token[req_pool_indices.long(), :longest].long()
    rows = torch.where(visible, rows, 0)
    out = _attend(
        q[:, None], k_buffer[rows], v_buffer[rows], visible[:, None], sm_scale, logit_cap, sinks
    )
    o.copy_(out[:, 0])


def extend_attention_cpu(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor | None,
    v_extend: torch.Tensor | None,
    o_extend: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """Several query tokens per request, after a prefix that is already in the cache.

    q_extend (T, H, D), o_extend (T, H, V). k_extend (T, G, D) and v_extend (T, G, V) are the
    new tokens' own keys and values (they are not written here); None means that they are in the
    buffers already. ``seq_lens`` counts prefix and new tokens. In the DeepSeek prefill without
    a prefix the keys are not latent, so their shape differs from the buffer's and the buffer
    must not be read. ``tree_mask``, flat (B * Q * Q) bool, says which new token sees which.
    Call site: ``IntelAMXAttnBackend.forward_extend``.
    """
    _refuse(is_cross_attn, k_scale, v_scale)
    prefixes = seq_lens.long() - extend_seq_lens.long()
    slots = req_pool_indices.long()
    lengths, starts = extend_seq_lens.tolist(), extend_start_loc.tolist()
    # Verification extends every request by the same length: one padded batch instead of a loop.
    if len(set(lengths)) == 1 and starts == list(range(0, lengths[0] * len(lengths), lengths[0])):
        groups = [(slice(None), slice(0, lengths[0] * len(lengths)), lengths[0])]
    else:
        groups = [
            (slice(i, i + 1), slice(start, start + length), length)
            for i, (start, length) in enumerate(zip(starts, lengths, strict=True))
        ]
    mask_offset = 0
    for requests, span, length in groups:
        prefix, slot = prefixes[requests], slots[requests]
        count = prefix.shape[0]
        if length == 0:
            continue
        block = None
        if tree_mask is not None:
            size = count * length * length
            block = tree_mask[mask_offset : mask_offset + size].view(count, length, length).bool()
            mask_offset += size
        longest = int(prefix.max())
        rows = req_to_token[slot, :longest].long()
        new_at = prefix[:, None] + torch.arange(length)[None]
        if k_extend is None or v_extend is None:
            new_rows = req_to_token[slot[:, None], new_at].long()
            key, value = k_buffer[new_rows], v_buffer[new_rows]
        else:
            key = k_extend[span].reshape(count, length, *k_extend.shape[-2:])
            value = v_extend[span].reshape(count, length, *v_extend.shape[-2:])
        if longest > 0:
            in_prefix = torch.arange(longest)[None] < prefix[:, None]
            rows = torch.where(in_prefix, rows, 0)
            key = torch.cat([k_buffer[rows].to(key.dtype), key], dim=1)
            value = torch.cat([v_buffer[rows].to(value.dtype), value], dim=1)
        visible = _visible_to_new(prefix, length, sliding_window, is_causal, block)
        query = q_extend[span].reshape(count, length, *q_extend.shape[-2:])
        out = _attend(query, key, value, visible, sm_scale, logit_cap, sinks)
        o_extend[span] = out.reshape(count * length, *o_extend.shape[-2:]).to(o_extend.dtype)


def _visible_to_new(
    prefix: torch.Tensor,
    length: int,
    sliding_window: int,
    is_causal: bool,
    block: torch.Tensor | None,
) -> torch.Tensor:
    """(B, Q, P + Q) bool: what each new token sees of the padded prefix and of the new tokens.

    prefix (B,) counts cached tokens, P is the largest of them; block (B, Q, Q) or None.
    """
    longest = int(prefix.max())
    at = torch.arange(longest)
    new = torch.arange(length)
    distance = prefix[:, None, None] + new[None, :, None] - at[None, None]
    old_part = (at[None, None] < prefix[:, None, None]) & _within_window(distance, sliding_window)
    distance = new[:, None] - new[None]
    new_part = _within_window(distance, sliding_window)[None]
    if block is not None:
        new_part = new_part & block
    elif is_causal:
        new_part = new_part & (distance >= 0)[None]
    return torch.cat([old_part, new_part.expand(prefix.shape[0], -1, -1)], dim=-1)
