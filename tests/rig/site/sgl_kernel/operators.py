"""Registration of the kernels that SGLang reaches through ``torch.ops.sgl_kernel``."""

from __future__ import annotations

import torch

from sgl_kernel import attention, hashing

_SCHEMAS = {
    "decode_attention_cpu": (
        "(Tensor q, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale, "
        "Tensor(c!) o, Tensor? k, Tensor? v, Tensor? loc, Tensor attn_logits, "
        "Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, float sm_scale, "
        "float logit_cap, bool is_cross_attn, int sliding_window, Tensor? encoder_lens, "
        "Tensor? sinks) -> ()"
    ),
    "extend_attention_cpu": (
        "(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend, "
        "Tensor k_buffer, Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, "
        "Tensor req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, "
        "Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, "
        "bool is_cross_attn, int sliding_window, Tensor? encoder_lens, Tensor? sinks, "
        "Tensor? tree_mask, bool is_causal) -> ()"
    ),
    "murmur_hash32_cpu": "(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor",
}

_IMPLEMENTATIONS = {
    "decode_attention_cpu": attention.decode_attention_cpu,
    "extend_attention_cpu": attention.extend_attention_cpu,
    "murmur_hash32_cpu": hashing.murmur_hash32_cpu,
}

# The registration lives as long as the library object does.
_library: torch.library.Library | None = None


def register() -> None:
    """Defines the operators once per process.

    ``convert_weight_packed`` stays undefined on purpose: its presence is how SGLang decides
    that the CPU has AMX kernels for linear layers, norms and activations.
    """
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("sgl_kernel", "DEF")
    for name, schema in _SCHEMAS.items():
        _library.define(name + schema)
        _library.impl(name, _IMPLEMENTATIONS[name], "CPU")
