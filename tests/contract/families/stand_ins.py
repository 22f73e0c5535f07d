"""What SGLang runs on a GPU only, in plain torch; part of the worker.

Everything else that a forward passes is the release's own: embedding, linear layers, rotary
embedding, routing, experts (SGLang's own torch path), and whatever captures.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


class Attention:
    """Causal attention of one prompt without a cache, in place of a GPU back end."""

    token_to_kv_pool = None

    def forward(
        self, q: Any, k: Any, v: Any, layer: Any, *_: Any, sinks: Any = None, **__: Any
    ) -> Any:
        tokens, width = q.shape[0], layer.qk_head_dim
        repeat = layer.tp_q_head_num // layer.tp_k_head_num
        q = q.view(tokens, -1, width)
        k = k.view(tokens, -1, width).repeat_interleave(repeat, 1)
        v = v.view(tokens, -1, width).repeat_interleave(repeat, 1)
        scores = torch.einsum("thd,shd->hts", q, k) * layer.scaling
        back = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
        hidden = back < 0
        window = layer.sliding_window_size
        if window is not None and window > 0:
            hidden = hidden | (back > window)
        scores = scores.masked_fill(hidden, float("-inf"))
        if sinks is not None:
            scores = torch.cat([scores, sinks.view(-1, 1, 1).expand(-1, tokens, 1)], -1)
        shares = scores.softmax(-1)[..., :tokens]
        return torch.einsum("hts,shd->thd", shares, v).reshape(tokens, -1)


def norms_in_place() -> None:
    """A norm that adds the residual writes both its arguments, as the kernel on a GPU does.

    On a CPU SGLang's norm gives out new tensors, and a captured tensor that the next layer would
    overwrite looks right there.
    """
    from sglang.srt.layers.layernorm import RMSNorm

    native = RMSNorm.forward_native

    @functools.wraps(native)
    def forward(self: Any, x: Any, residual: Any = None, *more: Any, **named: Any) -> Any:
        if residual is None:
            return native(self, x, None, *more, **named)
        normed, total = native(self, x.clone(), residual.clone(), *more, **named)
        return x.copy_(normed), residual.copy_(total)

    RMSNorm.forward_native = forward
    RMSNorm.forward_cpu = forward


def shared_expert_gate() -> None:
    """Qwen2-MoE's gate of the shared expert, a Triton kernel from some release on."""
    from sglang.srt.models import qwen2_moe

    def gated(hidden: Any, weight: Any, shared: Any) -> Any:
        return torch.sigmoid(hidden @ weight.reshape(-1, 1)) * shared

    def gate_sigmoid_mul(
        hidden_states: Any, gate_weight: Any, shared_output: Any, *_: Any, **__: Any
    ) -> Any:
        return gated(hidden_states, gate_weight, shared_output)

    def gate_sigmoid_mul_add(
        hidden_states: Any, gate_weight: Any, shared_output: Any, final: Any, *_: Any, **__: Any
    ) -> None:
        final.add_(gated(hidden_states, gate_weight, shared_output))

    for stand_in in (gate_sigmoid_mul, gate_sigmoid_mul_add):
        name = f"fused_{stand_in.__name__}"
        if hasattr(qwen2_moe, name):
            setattr(qwen2_moe, name, stand_in)


def biased_experts() -> None:
    """gpt-oss's experts, whose biases SGLang's torch path leaves out up to 0.5.10."""
    from sglang.srt.layers.moe import fused_moe_native as module

    plain = module.moe_forward_native
    if "w13_weight_bias" in plain.__code__.co_names + plain.__code__.co_consts:
        return

    def forward(layer: Any, x: Any, topk_output: Any, config: Any) -> Any:
        if not hasattr(layer, "w13_weight_bias"):
            return plain(layer, x, topk_output, config)
        shares, ids, _ = topk_output
        both = torch.einsum("th,tkoh->tko", x, layer.w13_weight[ids]) + layer.w13_weight_bias[ids]
        limit = config.gemm1_clamp_limit
        gate, up = both[..., ::2].clamp(max=limit), both[..., 1::2].clamp(-limit, limit)
        inner = (up + 1) * gate * torch.sigmoid(config.gemm1_alpha * gate)
        outer = torch.einsum("tki,tkhi->tkh", inner, layer.w2_weight[ids])
        return torch.einsum("tkh,tk->th", outer + layer.w2_weight_bias[ids], shares)

    module.moe_forward_native = forward
