"""Small index kernels between verification and the draft's next step.

Shapes: B requests, S slots per request in ``accept_index`` (longest tree path).
"""

from __future__ import annotations

import torch


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """Picks the last accepted token of every request, the bonus token.

    accept_tokens (B * accept_stride,), accept_lens (B,) counting the bonus token,
    bonus_tokens (B,) out. Call site: ``fill_bonus_tokens_func``.
    """
    first = torch.arange(accept_lens.shape[0]) * accept_stride
    bonus_tokens.copy_(accept_tokens.reshape(-1)[first + accept_lens.long() - 1])


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor,
    out_cache_loc: torch.Tensor,
    accept_out_cache_loc: torch.Tensor,
) -> None:
    """Packs the cache rows of the accepted tree tokens to the front.

    accept_index (B * S,) holds indices into ``out_cache_loc``, -1 where nothing was accepted.
    Call site: ``fill_accept_out_cache_loc_func``.
    """
    kept = accept_index.reshape(-1)
    kept = kept[kept > -1].long()
    accept_out_cache_loc[: kept.shape[0]] = out_cache_loc[kept]


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shifts each request's tokens left by one and puts a new token at its end, in place.

    input_ids (T,), the other tensors one value per request; ``select_index`` gives the absolute
    place of the new token where it is not the last one. Call site: ``rotate_input_ids``, which
    aligns draft tokens with the target's hidden states.
    """
    starts, lengths = extend_start_loc.tolist(), extend_seq_lens.tolist()
    new_tokens = topk_index.reshape(-1)
    for request, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        if length <= 0:
            continue
        end = start + length
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        last = end - 1 if select_index is None else int(select_index[request])
        input_ids[last] = new_tokens[request]
