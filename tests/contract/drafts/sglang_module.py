"""What SGLang's own draft classes compute; a worker in a process of its own, on the CPU.

Reads ``{"start": folder, "cases": [folder, ...], "work": folder}`` from the file named first. Each
case's folder has a draft, ``inputs.safetensors`` (aux [T, A*H], next_ids [T + S - 1], positions
[T]) and ``embedding.safetensors``. Beside them it writes ``sglang.safetensors`` with ``logits.k``
and ``hidden.k`` of the steps, and into the file named second what it could not do.

The classes, their layers, norms, rotary embeddings and weight loading are SGLang's. Only the
attention over the KV cache is written here, as the cache needs a server.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "served"))

import real_sglang

STEPS = 3


class Memory:
    """What one attention has seen: step 0's keys, and those of the rows' later steps."""

    def __init__(self, scale: float, value_size: int) -> None:
        self.scale, self.value_size = scale, value_size
        self.steps: list[tuple[Any, Any]] = []

    def attend(self, query: Any, keys: Any, values: Any) -> Any:
        """All [T, heads, size]; returns [T, heads * value size]."""
        import torch

        self.steps.append((keys, values))
        rows, heads, _ = query.shape
        groups = heads // keys.shape[1]
        gathered = []
        for row in range(rows):
            seen_keys = [self.steps[0][0][: row + 1]]
            seen_keys += [step[0][row : row + 1] for step in self.steps[1:]]
            seen_values = [self.steps[0][1][: row + 1]]
            seen_values += [step[1][row : row + 1] for step in self.steps[1:]]
            key = torch.cat(seen_keys).repeat_interleave(groups, dim=1)
            value = torch.cat(seen_values).repeat_interleave(groups, dim=1)
            scores = torch.einsum("hd,thd->ht", query[row], key) * self.scale
            gathered.append(torch.einsum("ht,thd->hd", scores.softmax(-1), value))
        return torch.stack(gathered).reshape(rows, heads * self.value_size)


def watch_grouped(attention: Any) -> None:
    """Llama's attention keeps everything but the look into the cache."""
    inner = attention.attn
    memory = Memory(attention.scaling, attention.head_dim)

    def forward(query: Any, keys: Any, values: Any, *_: Any, **__: Any) -> Any:
        size = attention.head_dim
        return memory.attend(
            query.view(-1, attention.num_heads, size),
            keys.view(-1, attention.num_kv_heads, size),
            values.view(-1, attention.num_kv_heads, size),
        )

    inner.forward = forward


def watch_latent(attention: Any) -> None:
    """Latent attention with its keys expanded: DeepSeek's definition, before any absorption."""
    import torch

    nope, turned = attention.qk_nope_head_dim, attention.qk_rope_head_dim
    heads, value = attention.num_local_heads, attention.v_head_dim
    memory = Memory(attention.scaling, value)

    def forward(positions: Any, hidden_states: Any, *_: Any, **__: Any) -> Any:
        both = attention.fused_qkv_a_proj_with_mqa(hidden_states)[0]
        narrow, latent, key = both.split(
            [attention.q_lora_rank, attention.kv_lora_rank, turned], dim=-1
        )
        query = attention.q_b_proj(attention.q_a_layernorm(narrow))[0].view(
            -1, heads, nope + turned
        )
        wide = attention.kv_b_proj(attention.kv_a_layernorm(latent))[0].view(
            -1, heads, nope + value
        )
        rotary = attention.rotary_emb
        query_turned, key = rotary.forward_native(
            positions, query[..., nope:].contiguous(), key[:, None].contiguous()
        )
        # Rotating halves natively adds a dimension of one.
        query_turned = query_turned.reshape(-1, heads, turned)
        key = key.reshape(-1, 1, turned)
        keys = torch.cat((wide[..., :nope], key.expand(-1, heads, -1)), dim=-1)
        query = torch.cat((query[..., :nope], query_turned), dim=-1)
        return attention.o_proj(memory.attend(query, keys, wide[..., nope:]))[0]

    attention.forward = forward


def compute(folder: Path) -> dict[str, Any]:
    """Steps of one draft."""
    import torch
    from safetensors.torch import load_file, save_file

    config = real_sglang.draft_config(str(folder))
    cls = real_sglang.model_class(config)
    model = cls(config.hf_config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else math.nan)
    weights = load_file(folder / "model.safetensors")
    given = load_file(folder / "inputs.safetensors")
    model.load_weights((name, tensor.clone()) for name, tensor in weights.items())
    target = load_file(folder / "embedding.safetensors")
    own = torch.nn.Parameter(target["embedding"], requires_grad=False)
    if getattr(model, "load_lm_head_from_target", False):
        head = torch.nn.Parameter(target["head"], requires_grad=False)
        model.set_embed_and_head(own, head)
    else:
        model.set_embed(own)
    latent = hasattr(model.model, "midlayer")
    layers = [model.model.midlayer] if latent else list(model.model.layers)
    for layer in layers:
        (watch_latent if latent else watch_grouped)(layer.self_attn)
    unfilled = [n for n, p in model.named_parameters() if bool(torch.isnan(p).any())]
    rows = len(given["positions"])
    hidden = given["aux"]
    results: dict[str, Any] = {}
    with torch.no_grad():
        for step in range(STEPS):
            ids = given["next_ids"][step : step + rows]
            batch = SimpleNamespace(
                mm_input_embeds=None,
                forward_mode=SimpleNamespace(is_extend=lambda: False),
                spec_info=SimpleNamespace(hidden_states=hidden),
                mrope_positions=None,
            )
            normed, [hidden] = model.model(ids, given["positions"] + step, batch)
            results[f"logits.{step}"] = (normed @ model.lm_head.weight.T).contiguous()
            results[f"hidden.{step}"] = hidden.clone()
    if model.hot_token_id is not None:
        results["target_ids"] = model.hot_token_id
    save_file(results, folder / "sglang.safetensors")
    return {"class": cls.__name__, "unfilled": unfilled}


def main(given: Path, answer: Path) -> None:
    """Every case of the file."""
    import torch

    questions = json.loads(given.read_text(encoding="utf-8"))
    real_sglang.allow_second_registration()
    real_sglang.start_process_group({"model_path": questions["start"]}, Path(questions["work"]))
    from sglang.srt.platforms import current_platform

    type(current_platform).synchronize = lambda *_: None
    torch.cuda.synchronize = lambda *_: None
    torch.set_num_threads(1)
    answers = [
        real_sglang.guarded(lambda case: compute(Path(case)), case) for case in questions["cases"]
    ]
    answer.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
