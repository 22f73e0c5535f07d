"""The EAGLE-3 draft as SGLang serves it (``LlamaForCausalLMEagle3``), in plain torch.

One decoder layer. Its attention reads ``cat(input_layernorm(embedding), hidden_norm(hidden))``,
its residual is the un-normed hidden state, its recurrent state is taken before the final norm and
its logits after it. In step 0 the hidden state is ``fc`` of the target's captured states, later
it is the draft's own recurrent state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .target_model import GatedMLP, RMSNorm, Target, linear, rotary_tables, rotate_halves

MAX_POSITIONS = 2048


@dataclass(frozen=True)
class DraftShape:
    """Sizes of a draft; ``boundaries`` are the target boundaries it is trained on, in order."""

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    boundaries: tuple[int, ...]


class DraftAttention(nn.Module):
    """Attention of one step over step 0's keys and over the row's own later steps."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = linear(2 * shape.hidden_size, shape.num_heads * shape.head_dim)
        self.k_proj = linear(2 * shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.v_proj = linear(2 * shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.o_proj = linear(shape.num_heads * shape.head_dim, shape.hidden_size)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, keys and values of (batch, rows, 2 * hidden), each (batch, heads, rows, dim)."""
        shape, (batch, rows, _) = self.shape, x.shape
        groups = shape.num_heads // shape.num_kv_heads
        query = self.q_proj(x).view(batch, rows, shape.num_heads, shape.head_dim)
        keys = self.k_proj(x).view(batch, rows, shape.num_kv_heads, shape.head_dim)
        values = self.v_proj(x).view(batch, rows, shape.num_kv_heads, shape.head_dim)
        query = rotate_halves(query, cos, sin).transpose(1, 2)
        keys = rotate_halves(keys, cos, sin).transpose(1, 2).repeat_interleave(groups, dim=1)
        return query, keys, values.transpose(1, 2).repeat_interleave(groups, dim=1)


class DraftLayer(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.self_attn = DraftAttention(shape)
        self.mlp = GatedMLP(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = RMSNorm(shape.hidden_size)
        self.hidden_norm = RMSNorm(shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size)
        nn.init.zeros_(self.self_attn.o_proj.weight)
        nn.init.zeros_(self.mlp.down_proj.weight)


@dataclass
class StepKeys:
    """Keys and values of the steps so far, each (batch, heads, rows, dim).

    Row t of step k sees step 0 at rows 0..t and steps 1..k at row t only: exactly what a served
    chain that starts at row t has written by then.
    """

    keys: list[Tensor]
    values: list[Tensor]


class Draft(nn.Module):
    """A draft over the target's embedding; ``state_dict`` has the published names."""

    cos: Tensor
    sin: Tensor
    d2t: Tensor
    t2d: Tensor

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = linear(len(shape.boundaries) * shape.hidden_size, shape.hidden_size)
        self.midlayer = DraftLayer(shape)
        self.norm = RMSNorm(shape.hidden_size)
        self.lm_head = nn.Linear(shape.hidden_size, shape.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(shape.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(shape.vocab_size, dtype=torch.bool))
        cos, sin = rotary_tables(MAX_POSITIONS, shape.head_dim)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def target_ids(self) -> Tensor:
        """Target id of every draft id, (draft_vocab,)."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def start_from(self, target: Target, target_ids: Tensor, sample: Tensor) -> None:
        """Set the vocabulary map; take the head's rows and the final norm from the target; scale
        ``fc`` so that all captured states start with equal weight, however small they are.

        ``target_ids`` is (draft_vocab,), sorted ascending; ``sample`` is token ids
        (batch, length) on which the scale of the states is measured.
        """
        self.d2t.copy_(target_ids - torch.arange(len(target_ids), device=target_ids.device))
        self.t2d.zero_()
        self.t2d[target_ids] = True
        with torch.no_grad():
            self.lm_head.weight.copy_(target.lm_head.weight[target_ids])
            self.norm.weight.copy_(target.model.norm.weight)
            states = target.boundaries(sample)
            blocks = self.fc.weight.chunk(len(self.shape.boundaries), dim=1)
            for block, boundary in zip(blocks, self.shape.boundaries, strict=True):
                block /= states[boundary].square().mean().sqrt()

    def combine(self, captured: list[Tensor]) -> Tensor:
        """``fc`` of the captured states, each (batch, rows, hidden), in the draft's order."""
        return self.fc(torch.cat(captured, dim=-1))

    def step(
        self, embeddings: Tensor, hidden: Tensor, steps: StepKeys, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One step of training-time test for all rows at once.

        ``embeddings`` and ``hidden`` are (batch, rows, hidden); ``mask`` (rows, rows) is 0 where
        a row may look and -inf elsewhere. Returns the logits (batch, rows, draft_vocab) and the
        recurrent state (batch, rows, hidden), and adds this step's keys to ``steps``.
        """
        layer, attention, index = self.midlayer, self.midlayer.self_attn, len(steps.keys)
        rows = hidden.shape[1]
        cos, sin = self.cos[index : index + rows], self.sin[index : index + rows]
        x = torch.cat((layer.input_layernorm(embeddings), layer.hidden_norm(hidden)), dim=-1)
        query, keys, values = attention.project(x, cos, sin)
        steps.keys.append(keys)
        steps.values.append(values)
        query = query * self.shape.head_dim**-0.5
        scores = [query @ steps.keys[0].mT + mask]
        scores += [(query * own).sum(-1, keepdim=True) for own in steps.keys[1:]]
        weights = torch.cat(scores, dim=-1).softmax(-1)
        out = weights[..., :rows] @ steps.values[0]
        for k, own in enumerate(steps.values[1:]):
            out = out + weights[..., rows + k : rows + k + 1] * own
        return self.finish(out.transpose(1, 2).flatten(2), hidden)

    def finish(self, attended: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The layer after its attention: logits and recurrent state."""
        hidden = residual + self.midlayer.self_attn.o_proj(attended)
        hidden = hidden + self.midlayer.mlp(self.midlayer.post_attention_layernorm(hidden))
        return self.lm_head(self.norm(hidden)), hidden

    def chain(self, embeddings: Tensor, combined: Tensor, count: int) -> list[Tensor]:
        """Teacher-forced logits of steps 0..count-1.

        ``embeddings`` is (batch, length, hidden) of the ids x_0..x_{L-1} and ``combined`` the
        same shape (``combine`` of the states at these ids). Row t of step k reads x_{t+1+k} and
        predicts x_{t+2+k}; every step has length - count rows.
        """
        steps, logits, hidden = StepKeys([], []), [], combined
        rows = embeddings.shape[1] - count
        mask = torch.full((rows, rows), float("-inf"), device=embeddings.device).triu(1)
        hidden = hidden[:, :rows]
        for k in range(count):
            out, hidden = self.step(embeddings[:, k + 1 : k + 1 + rows], hidden, steps, mask)
            logits.append(out)
        return logits
