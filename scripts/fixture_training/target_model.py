"""The two target shapes in plain torch, with parameter names as Hugging Face saves them.

The forward passes do what ``DeepseekV3ForCausalLM`` (dense layers only) and ``LlamaForCausalLM``
do, without their generality, so that training on two CPU cores is fast. ``export.check_against_hf``
proves that the logits agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROPE_THETA = 10000.0
MAX_POSITIONS = 2048
NORM_EPS = 1e-6


@dataclass(frozen=True)
class TargetShape:
    """Sizes of a target. ``kind`` is "deepseek" (latent attention) or "llama"."""

    kind: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    # llama
    num_kv_heads: int = 0
    head_dim: int = 0
    # deepseek
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def default_boundaries(self) -> tuple[int, int, int]:
        """Where SGLang captures when the draft's config names no layers."""
        return (2, self.num_layers // 2, self.num_layers - 3)


def rotary_tables(length: int, dim: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of shape (length, dim // 2)."""
    frequencies = ROPE_THETA ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (even, odd) pairs, DeepSeek's layout. ``x`` is (..., length, heads, dim)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (first half, second half), Llama's layout. ``x`` is (..., length, heads, dim)."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, NORM_EPS)


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.7 * inputs**-0.5)
    return layer


class KeyValueCache:
    """Keys and values of one layer, (batch, heads, capacity, dim), filled from the left."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (batch, heads, new, dim) and return everything stored so far."""
        if self._keys is None or self._values is None:
            batch, heads = keys.shape[:2]
            self._keys = keys.new_empty(batch, heads, self.capacity, keys.shape[-1])
            self._values = values.new_empty(batch, heads, self.capacity, values.shape[-1])
        end = self.length + keys.shape[2]
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def truncate(self, length: int) -> None:
        self.length = length


def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention; (batch, heads, length, dim) in, (batch, length, heads * dim) out.

    Narrow values are padded to the keys' width, since torch's fused kernel wants equal widths.
    """
    value_dim = values.shape[-1]
    values = F.pad(values, (0, query.shape[-1] - value_dim))
    if query.shape[2] == keys.shape[2]:
        out = F.scaled_dot_product_attention(query, keys, values, is_causal=True)
    else:
        length, total = query.shape[2], keys.shape[2]
        mask = torch.ones(length, total, dtype=torch.bool, device=query.device)
        mask = mask.tril(total - length)
        out = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
    return out[..., :value_dim].transpose(1, 2).flatten(2)


class LatentAttention(nn.Module):
    """Multi-head latent attention, keys and values expanded (no absorption)."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        self.q_a_proj = linear(shape.hidden_size, shape.q_lora_rank)
        self.q_a_layernorm = RMSNorm(shape.q_lora_rank)
        query_dim = shape.qk_nope_head_dim + shape.qk_rope_head_dim
        self.q_b_proj = linear(shape.q_lora_rank, shape.num_heads * query_dim)
        self.kv_a_proj_with_mqa = linear(
            shape.hidden_size, shape.kv_lora_rank + shape.qk_rope_head_dim
        )
        self.kv_a_layernorm = RMSNorm(shape.kv_lora_rank)
        self.kv_b_proj = linear(
            shape.kv_lora_rank, shape.num_heads * (shape.qk_nope_head_dim + shape.v_head_dim)
        )
        self.o_proj = linear(shape.num_heads * shape.v_head_dim, shape.hidden_size)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: KeyValueCache | None = None
    ) -> Tensor:
        shape, (batch, length, _) = self.shape, x.shape
        nope, rope = shape.qk_nope_head_dim, shape.qk_rope_head_dim
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        query = query.view(batch, length, shape.num_heads, nope + rope)
        latent, key_rope = self.kv_a_proj_with_mqa(x).split((shape.kv_lora_rank, rope), dim=-1)
        expanded = self.kv_b_proj(self.kv_a_layernorm(latent))
        expanded = expanded.view(batch, length, shape.num_heads, nope + shape.v_head_dim)
        query_rope = rotate_pairs(query[..., nope:], cos, sin)
        key_rope = rotate_pairs(key_rope.unsqueeze(2), cos, sin)
        query = torch.cat((query[..., :nope], query_rope), dim=-1).transpose(1, 2)
        key_rope = key_rope.expand(-1, -1, shape.num_heads, -1)
        keys = torch.cat((expanded[..., :nope], key_rope), dim=-1).transpose(1, 2)
        values = expanded[..., nope:].transpose(1, 2)
        if cache is not None:
            keys, values = cache.append(keys, values)
        return self.o_proj(attend(query, keys, values))


class GroupedAttention(nn.Module):
    """Grouped-query attention as in Llama."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = linear(shape.hidden_size, shape.num_heads * shape.head_dim)
        self.k_proj = linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.v_proj = linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.o_proj = linear(shape.num_heads * shape.head_dim, shape.hidden_size)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: KeyValueCache | None = None
    ) -> Tensor:
        shape, (batch, length, _) = self.shape, x.shape
        query = self.q_proj(x).view(batch, length, shape.num_heads, shape.head_dim)
        keys = self.k_proj(x).view(batch, length, shape.num_kv_heads, shape.head_dim)
        values = self.v_proj(x).view(batch, length, shape.num_kv_heads, shape.head_dim)
        query = rotate_halves(query, cos, sin).transpose(1, 2)
        groups = shape.num_heads // shape.num_kv_heads
        keys = rotate_halves(keys, cos, sin).transpose(1, 2).repeat_interleave(groups, dim=1)
        values = values.transpose(1, 2).repeat_interleave(groups, dim=1)
        if cache is not None:
            keys, values = cache.append(keys, values)
        return self.o_proj(attend(query, keys, values))


class GatedMLP(nn.Module):
    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = linear(hidden_size, intermediate_size)
        self.up_proj = linear(hidden_size, intermediate_size)
        self.down_proj = linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        attention = LatentAttention if shape.kind == "deepseek" else GroupedAttention
        self.self_attn = attention(shape)
        self.mlp = GatedMLP(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = RMSNorm(shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size)
        nn.init.zeros_(self.self_attn.o_proj.weight)
        nn.init.zeros_(self.mlp.down_proj.weight)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: KeyValueCache | None = None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size)


class Target(nn.Module):
    """A causal language model; ``state_dict`` loads into the Hugging Face class as it is."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        nn.init.normal_(self.lm_head.weight, std=0.5 * shape.hidden_size**-0.5)
        rope_dim = shape.qk_rope_head_dim if shape.kind == "deepseek" else shape.head_dim
        cos, sin = rotary_tables(MAX_POSITIONS, rope_dim)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def boundaries(
        self, ids: Tensor, caches: list[KeyValueCache] | None = None, start: int = 0
    ) -> list[Tensor]:
        """All N + 1 boundary states, each (batch, length, hidden); the last one is pre-norm."""
        length = ids.shape[1]
        cos, sin = self.cos[start : start + length], self.sin[start : start + length]
        x = self.model.embed_tokens(ids)
        states = [x]
        for index, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, caches[index] if caches is not None else None)
            states.append(x)
        return states

    def logits_of(self, last_boundary: Tensor) -> Tensor:
        return self.lm_head(self.model.norm(last_boundary))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, length, vocab) of token ids (batch, length)."""
        return self.logits_of(self.boundaries(ids)[-1])

    def new_caches(self, capacity: int) -> list[KeyValueCache]:
        return [KeyValueCache(capacity) for _ in range(self.shape.num_layers)]
