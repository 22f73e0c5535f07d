"""A draft of Kimi-K2's size, a target's embedding, and a capture; all random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from sglang_eagle3_probe.capture.layout import PieceInfo, piece_name
from sglang_eagle3_probe.capture.writing import write_piece

HIDDEN, HEADS, HEAD_DIM, INNER, VOCAB, DRAFT_VOCAB = 7168, 64, 128, 18432, 163840, 32000
STEPS, PROMPT, PER_ROUND = 3, 64, 2


def write(place: Path, tokens: int) -> None:
    """``draft``, ``target`` and ``capture`` below a folder."""
    generator = torch.Generator().manual_seed(0)
    for name in ("draft", "target"):
        (place / name).mkdir(parents=True, exist_ok=True)
    save_file(_weights(generator), place / "draft" / "model.safetensors")
    (place / "draft" / "config.json").write_text(json.dumps(_config()))
    table = torch.zeros(VOCAB, HIDDEN, dtype=torch.bfloat16)
    table[:4096].normal_(generator=generator)
    save_file({"model.embed_tokens.weight": table}, place / "target" / "model.safetensors")
    config = {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": HIDDEN,
              "vocab_size": VOCAB, "rope_theta": 50000.0}  # fmt: skip
    (place / "target" / "config.json").write_text(json.dumps(config))
    _capture(place / "capture", tokens, generator)


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB, "max_position_embeddings": 131072,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip


def _weights(generator: torch.Generator) -> dict[str, torch.Tensor]:
    attention = HEADS * HEAD_DIM
    shapes = {
        "fc": (HIDDEN, 3 * HIDDEN), "lm_head": (DRAFT_VOCAB, HIDDEN),
        **{f"midlayer.self_attn.{n}_proj": (attention, 2 * HIDDEN) for n in "qkv"},
        "midlayer.self_attn.o_proj": (HIDDEN, attention),
        "midlayer.mlp.gate_proj": (INNER, HIDDEN), "midlayer.mlp.up_proj": (INNER, HIDDEN),
        "midlayer.mlp.down_proj": (HIDDEN, INNER),
    }  # fmt: skip
    found = {
        f"{name}.weight": torch.empty(shape, dtype=torch.bfloat16).normal_(
            std=shape[1] ** -0.5, generator=generator
        )
        for name, shape in shapes.items()
    }
    norms = ("norm", *(f"midlayer.{n}" for n in
             ("input_layernorm", "hidden_norm", "post_attention_layernorm")))  # fmt: skip
    found |= {f"{name}.weight": torch.ones(HIDDEN, dtype=torch.bfloat16) for name in norms}
    return {**found, "d2t": torch.zeros(DRAFT_VOCAB, dtype=torch.int64)}


def _capture(folder: Path, tokens: int, generator: torch.Generator) -> None:
    folder.mkdir(exist_ok=True)

    def states(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, 3 * HIDDEN, dtype=torch.bfloat16).normal_(generator=generator)

    def ids(*shape: int) -> torch.Tensor:
        return torch.randint(0, 4096, shape, generator=generator)

    info: dict[str, Any] = {
        "request": "kimi", "boundaries": [2, 30, 58], "dtype": "bfloat16", "hidden_width": HIDDEN,
        "steps": STEPS, "topk": 1, "num_draft_tokens": STEPS + 1, "prompt_tokens": PROMPT,
    }  # fmt: skip
    prompt = ids(PROMPT)
    write_piece(
        folder / piece_name(0, 0, "bench"),
        PieceInfo(kind="prefill", piece=0, **info),
        {"prompt_ids": prompt, "token_ids": prompt.clone(), "positions": torch.arange(PROMPT),
         "aux": states(PROMPT), "next_id": ids(1)},
    )  # fmt: skip
    roots = torch.arange(PROMPT, tokens, PER_ROUND)
    rounds, nodes = len(roots), STEPS + 1
    accepted = torch.full((rounds, nodes), -1)
    accepted[:, :PER_ROUND] = torch.arange(PER_ROUND)
    write_piece(
        folder / piece_name(0, 1, "bench"),
        PieceInfo(kind="rounds", piece=1, last=True, **info),
        {"root_positions": roots, "node_ids": ids(rounds, nodes), "target_ids": ids(rounds, nodes),
         "node_positions": roots[:, None] + torch.arange(nodes), "bonus_ids": ids(rounds),
         "node_parents": (torch.arange(nodes) - 1).expand(rounds, -1).contiguous(),
         "accepted_nodes": accepted, "aux": states(rounds, nodes)},
    )  # fmt: skip
