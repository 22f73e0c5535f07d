"""Tiny models with random weights, to try the rig without trained fixtures.

Their drafts know nothing, so only a lucky guess is accepted. To give luck a chance, target and
draft predict nothing but a handful of tokens, the alphabet: with four of them every fourth guess
is right, and verification has rejected, partly accepted and fully accepted drafts to deal with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM

VOCAB_SIZE = 2048
CONTEXT_LENGTH = 2048
EOS_TOKEN = 1
ALPHABET = (5, 600, 1203, 1999)


def write_deepseek_v3(directory: Path, seed: int = 0) -> Path:
    """Writes a dense DeepSeek-V3 shape (latent attention, no experts): hidden 192, 10 layers."""
    layers = 10
    config = DeepseekV3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=192,
        intermediate_size=480,
        moe_intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=layers,
        kv_lora_rank=48,
        q_lora_rank=64,
        qk_rope_head_dim=16,
        qk_nope_head_dim=24,
        v_head_dim=32,
        max_position_embeddings=CONTEXT_LENGTH,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=EOS_TOKEN,
        rope_scaling={
            "type": "yarn",
            "rope_type": "yarn",
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": CONTEXT_LENGTH,
        },
    )
    # SGLang reads this key; transformers has no field for it.
    return _write_target(DeepseekV3ForCausalLM, config, directory, seed, {"moe_layer_freq": 1})


def write_llama(directory: Path, seed: int = 0) -> Path:
    """Writes a Llama shape with grouped-query attention: hidden 128, 8 layers."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=EOS_TOKEN,
    )
    return _write_target(LlamaForCausalLM, config, directory, seed, {})


def write_eagle3_draft(
    directory: Path,
    target: Path,
    seed: int = 0,
    aux_layer_ids: list[int] | None = None,
    **config_changes: Any,
) -> Path:
    """Writes a one-layer EAGLE-3 draft for ``target``, with half of its vocabulary.

    ``aux_layer_ids`` goes into ``eagle_config`` as it is; None leaves SGLang's default layers.
    """
    target_config = json.loads((target / "config.json").read_text())
    hidden, vocab = target_config["hidden_size"], target_config["vocab_size"]
    heads, intermediate = 4, target_config["intermediate_size"]
    draft_vocab = vocab // 2
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "num_hidden_layers": 1,
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "max_position_embeddings": CONTEXT_LENGTH,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": EOS_TOKEN,
        "torch_dtype": "float32",
    }
    aux_count = 3
    if aux_layer_ids is not None:
        aux_count = len(aux_layer_ids)
        config["eagle_config"] = {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": aux_layer_ids,
        }
    config.update(config_changes)

    generator = torch.Generator().manual_seed(seed)

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 0.05

    # Draft id i stands for target id i + d2t[i]; t2d marks the target ids that have a draft id.
    kept = torch.randperm(vocab, generator=generator)
    kept = torch.cat([torch.tensor(ALPHABET), kept[~torch.isin(kept, torch.tensor(ALPHABET))]])
    kept = kept[:draft_vocab].sort().values
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[kept] = True
    letters = torch.searchsorted(kept, torch.tensor(ALPHABET))
    tensors = {
        "midlayer.self_attn.q_proj.weight": weight(hidden, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": weight(hidden, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": weight(hidden, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": weight(hidden, hidden),
        "midlayer.mlp.gate_proj.weight": weight(intermediate, hidden),
        "midlayer.mlp.up_proj.weight": weight(intermediate, hidden),
        "midlayer.mlp.down_proj.weight": weight(hidden, intermediate),
        "midlayer.hidden_norm.weight": torch.ones(hidden),
        "midlayer.input_layernorm.weight": torch.ones(hidden),
        "midlayer.post_attention_layernorm.weight": torch.ones(hidden),
        "fc.weight": weight(hidden, aux_count * hidden),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": _alphabet_head(draft_vocab, hidden, letters, generator),
        "d2t": kept - torch.arange(draft_vocab),
        "t2d": t2d,
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def _write_target(
    model_class: Any, config: Any, directory: Path, seed: int, more_config: dict[str, Any]
) -> Path:
    torch.manual_seed(seed)
    model = model_class(config).to(torch.float32)
    generator = torch.Generator().manual_seed(seed + 1)
    head = _alphabet_head(config.vocab_size, config.hidden_size, torch.tensor(ALPHABET), generator)
    model.lm_head.weight.data.copy_(head)
    model.save_pretrained(directory)
    if more_config:
        path = directory / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | more_config, indent=2))
    return directory


def _alphabet_head(
    rows: int, hidden: int, letters: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Output head in which only ``letters`` can win: half of them the negatives of the others.

    All other tokens have logit 0, and of two opposite logits one is positive.
    """
    directions = torch.randn(len(letters) // 2, hidden, generator=generator) * 0.5
    head = torch.zeros(rows, hidden)
    head[letters] = torch.cat([directions, -directions])
    return head
