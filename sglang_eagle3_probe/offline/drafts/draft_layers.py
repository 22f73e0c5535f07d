"""One decoder layer of a draft, over rows that look at an accepted sequence and at own later steps.

Letters: T rows of the sequence, R rows computed, Q query heads, N key heads, D head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from sglang_eagle3_probe.offline.drafts.draft_plan import DraftPlan
from sglang_eagle3_probe.offline.drafts.draft_weights import DraftWeights, apply
from sglang_eagle3_probe.offline.drafts.rotary import Rotary, latent_attention_scale

SCORES = 1 << 25
"""Attention scores that are held at once."""


@dataclass(frozen=True)
class Keys:
    """Keys [T, N, D] and values [T, N, V] of some rows at ``positions`` [T]."""

    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root mean square norm over the last dimension, computed in float32."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * weight.to(torch.float32)).to(x.dtype)


def attend(
    query: torch.Tensor,
    positions: torch.Tensor,
    sequence: Keys,
    last: torch.Tensor,
    own: list[Keys],
    scale: float,
    window: int | None,
    window_moves: bool,
) -> torch.Tensor:
    """What each row gathers.

    Args:
        query: [R, Q, D] at ``positions`` [R].
        sequence: of the accepted rows; row r sees those up to and including ``last[r]``.
        own: of the steps that each row has taken since, one entry [R, N, D] a step.
        window: positions back that are seen, the row's own counted; None: all.
        window_moves: False: measured from ``last``, and own steps are always seen.

    Returns:
        [R, Q, V].
    """
    rows, heads, _ = query.shape
    groups = heads // sequence.keys.shape[1]
    result = query.new_empty(rows, heads, sequence.values.shape[-1])
    chunk = max(1, SCORES // max(1, heads * len(sequence.keys)))
    for start in range(0, rows, chunk):
        part = slice(start, start + chunk)
        end = int(last[part].max()) + 1 if len(last[part]) else 0
        keys, values = (
            _of_groups(sequence.keys[:end], groups),
            _of_groups(sequence.values[:end], groups),
        )
        at = positions[part] if window_moves else sequence.positions[last[part]]
        scores = torch.einsum("rqd,tqd->rqt", query[part] * scale, keys)
        seen = torch.arange(end)[None] <= last[part][:, None]
        if window is not None:
            seen &= at[:, None] - sequence.positions[None, :end] < window
        scores = scores.masked_fill(~seen[:, None], float("-inf"))
        later = []
        for step in own:
            key = step.keys[part].repeat_interleave(groups, dim=1)
            score = (query[part] * scale * key).sum(-1, keepdim=True)
            if window is not None and window_moves:
                gone = at - step.positions[part] >= window
                score = score.masked_fill(gone[:, None, None], float("-inf"))
            later.append(score)
        weights = torch.cat([scores, *later], dim=-1).to(torch.float32).softmax(-1).to(query.dtype)
        gathered = torch.einsum("rqt,tqv->rqv", weights[..., :end], values)
        for index, step in enumerate(own):
            value = step.values[part].repeat_interleave(groups, dim=1)
            gathered = gathered + weights[..., end + index, None] * value
        result[part] = gathered
    return result


def _of_groups(x: torch.Tensor, groups: int) -> torch.Tensor:
    """[T, N, D] -> [T, N * groups, D]; of one group no copy is made."""
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


class DraftLayer:
    """Layer ``index`` of a draft."""

    def __init__(self, plan: DraftPlan, weights: DraftWeights, index: int, rotary: Rotary) -> None:
        self.plan, self.weights, self.index, self.rotary = plan, weights, index, rotary

    def _weight(self, name: str) -> torch.Tensor:
        found = self.weights.get(f"layers.{self.index}.{name}.weight")
        assert found is not None
        return found

    def _bias(self, name: str) -> torch.Tensor | None:
        wanted = self.plan.o_bias if name.endswith("o_proj") else self.plan.qkv_bias
        if not wanted:
            return None
        return self.weights.get(f"layers.{self.index}.{name}.bias", required=False)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.weights.norm(f"layers.{self.index}.{name}.weight", x.shape[-1])
        return rms_norm(x, weight, self.plan.eps)

    def attention_input(
        self, embeddings: torch.Tensor, stream: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the attention reads, [T, 2 G] in layer 0 and [T, G] later, and the residual."""
        if self.index:
            return self._norm(stream, self.plan.later_norm), stream
        normed = stream
        if self.plan.double_norm:
            normed = self._norm(normed, "input_layernorm")
        normed = self._norm(normed, "hidden_norm")
        residual = normed if self.plan.norm_before_residual else stream
        return torch.cat((self._norm(embeddings, "input_layernorm"), normed), dim=-1), residual

    def project_keys(self, x: torch.Tensor, positions: torch.Tensor) -> Keys:
        """Keys and values of rows [T, in]."""
        if self.plan.latent is not None:
            return self._latent_keys(x, positions)
        plan, rows = self.plan, x.shape[0]
        keys = apply(x, self._weight("self_attn.k_proj"), self._bias("self_attn.k_proj"))
        values = apply(x, self._weight("self_attn.v_proj"), self._bias("self_attn.v_proj"))
        keys = keys.view(rows, plan.kv_heads, plan.head_dim)
        if plan.head_norms:
            keys = self._norm(keys, "self_attn.k_norm")
        keys = self.rotary.rotate(keys, positions)
        return Keys(keys, values.view(rows, plan.kv_heads, plan.head_dim), positions)

    def _latent_keys(self, x: torch.Tensor, positions: torch.Tensor) -> Keys:
        sizes = self.plan.latent
        assert sizes is not None
        both = apply(x, self._weight("self_attn.kv_a_proj_with_mqa"))
        latent, shared = both.split((sizes.kv_lora_rank, sizes.rope), dim=-1)
        latent = self._norm(latent, "self_attn.kv_a_layernorm")
        wide = apply(latent, self._weight("self_attn.kv_b_proj"))
        wide = wide.view(x.shape[0], self.plan.heads, sizes.nope + sizes.value)
        turned = self.rotary.rotate(shared[:, None], positions).expand(-1, self.plan.heads, -1)
        keys = torch.cat((wide[..., : sizes.nope], turned), dim=-1)
        return Keys(keys, wide[..., sizes.nope :], positions)

    def project_query(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Queries [R, Q, D] of rows [R, in]."""
        plan, rows, sizes = self.plan, x.shape[0], self.plan.latent
        if sizes is None:
            query = apply(x, self._weight("self_attn.q_proj"), self._bias("self_attn.q_proj"))
            query = query.view(rows, plan.heads, plan.head_dim)
            if plan.head_norms:
                query = self._norm(query, "self_attn.q_norm")
            return self.rotary.rotate(query, positions)
        if sizes.q_lora_rank is None:
            query = apply(x, self._weight("self_attn.q_proj"))
        else:
            narrow = self._norm(
                apply(x, self._weight("self_attn.q_a_proj")), "self_attn.q_a_layernorm"
            )
            query = apply(narrow, self._weight("self_attn.q_b_proj"))
        query = query.view(rows, plan.heads, sizes.nope + sizes.rope)
        turned = self.rotary.rotate(query[..., sizes.nope :], positions)
        return torch.cat((query[..., : sizes.nope], turned), dim=-1)

    @property
    def scale(self) -> float:
        """Softmax scale."""
        sizes = self.plan.latent
        if sizes is None:
            return 1 / math.sqrt(self.plan.head_dim)
        return latent_attention_scale(self.plan.rope) / math.sqrt(sizes.nope + sizes.rope)

    def finish(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        sequence: Keys,
        last: torch.Tensor,
        own: list[Keys],
    ) -> torch.Tensor:
        """The residual stream after the layer, [R, G], of rows with attention input ``x``."""
        query = self.project_query(x, positions)
        gathered = attend(
            query,
            positions,
            sequence,
            last,
            own,
            self.scale,
            self.plan.window,
            self.plan.window_moves,
        ).flatten(1)
        stream = residual + apply(
            gathered, self._weight("self_attn.o_proj"), self._bias("self_attn.o_proj")
        )
        return stream + self._mlp(self._norm(stream, "post_attention_layernorm"))

    def _mlp(self, x: torch.Tensor) -> torch.Tensor:
        gate = apply(x, self._weight("mlp.gate_proj"))
        gate = (
            functional.silu(gate)
            if self.plan.activation == "silu"
            else functional.gelu(
                gate, approximate="tanh" if self.plan.activation.endswith("tanh") else "none"
            )
        )
        return apply(gate * apply(x, self._weight("mlp.up_proj")), self._weight("mlp.down_proj"))
