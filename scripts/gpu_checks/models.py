"""Random models of real shapes, made on the spot: a GPU machine need not reach any hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

VOCAB = 32000
CONTEXT = 4096

COMMON = {
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
    "rope_theta": 10000.0,
}


def llama_config(layers: int, hidden: int) -> dict[str, Any]:
    """Llama shape with head size 128."""
    return {
        **COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": hidden // 256,
        "head_dim": 128,
    }


def deepseek_config(layers: int, hidden: int) -> dict[str, Any]:
    """DeepSeek-V3 shape: latent attention with its real head sizes, dense layers only."""
    return {
        **COMMON,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "moe_intermediate_size": 512,
        "num_hidden_layers": layers,
        "first_k_dense_replace": layers,
        "moe_layer_freq": 1,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "kv_lora_rank": 512,
        "q_lora_rank": 768,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "num_nextn_predict_layers": 0,
        "rope_scaling": {
            "type": "yarn",
            "rope_type": "yarn",
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": CONTEXT,
        },
    }


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Checkpoint names and sizes of a target."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (VOCAB, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": (hidden,),
            at + "post_attention_layernorm.weight": (hidden,),
            at + "mlp.gate_proj.weight": (inner, hidden),
            at + "mlp.up_proj.weight": (inner, hidden),
            at + "mlp.down_proj.weight": (hidden, inner),
        }
        heads = config["num_attention_heads"]
        if config["model_type"] == "llama":
            head, kv = config["head_dim"], config["num_key_value_heads"]
            shapes |= {
                at + "self_attn.q_proj.weight": (heads * head, hidden),
                at + "self_attn.k_proj.weight": (kv * head, hidden),
                at + "self_attn.v_proj.weight": (kv * head, hidden),
                at + "self_attn.o_proj.weight": (hidden, heads * head),
            }
        else:
            rope, nope, value = (
                config["qk_rope_head_dim"],
                config["qk_nope_head_dim"],
                config["v_head_dim"],
            )
            q_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
            shapes |= {
                at + "self_attn.q_a_proj.weight": (q_rank, hidden),
                at + "self_attn.q_a_layernorm.weight": (q_rank,),
                at + "self_attn.q_b_proj.weight": (heads * (nope + rope), q_rank),
                at + "self_attn.kv_a_proj_with_mqa.weight": (kv_rank + rope, hidden),
                at + "self_attn.kv_a_layernorm.weight": (kv_rank,),
                at + "self_attn.kv_b_proj.weight": (heads * (nope + value), kv_rank),
                at + "self_attn.o_proj.weight": (hidden, heads * value),
            }
    return shapes


def write(directory: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Path:
    """A model of random bfloat16 weights; norms are ones."""
    directory.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(len(shapes))
    tensors = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            tensors[name] = torch.ones(shape, dtype=torch.bfloat16)
            continue
        scale = 1.0 if "embed" in name else shape[-1] ** -0.5
        weight = torch.randn(shape, generator=generator, device=device) * scale
        tensors[name] = weight.to(torch.bfloat16).cpu()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    return directory


def write_target(directory: Path, family: str, layers: int, hidden: int) -> Path:
    """``family``: llama or deepseek."""
    config = (llama_config if family == "llama" else deepseek_config)(layers, hidden)
    return write(directory, config, shapes_of(config))


def write_draft(directory: Path, hidden: int, ids: list[int] | None) -> Path:
    """A random EAGLE-3 draft with half the vocabulary: accepts next to nothing, wires like any."""
    config = {
        **llama_config(1, hidden),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": VOCAB // 2,
    }
    if ids is not None:
        config["eagle_config"] = {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": ids,
        }
    target = {**config, "vocab_size": VOCAB}
    shapes = {
        name.replace("model.layers.0.", "midlayer.").replace("model.norm", "norm"): shape
        for name, shape in shapes_of(target).items()
        if "embed" not in name
    }
    for part in ("q_proj", "k_proj", "v_proj"):
        rows, columns = shapes[f"midlayer.self_attn.{part}.weight"]
        shapes[f"midlayer.self_attn.{part}.weight"] = (rows, 2 * columns)
    shapes["midlayer.hidden_norm.weight"] = (hidden,)
    shapes["fc.weight"] = (hidden, 3 * hidden)
    shapes["lm_head.weight"] = (VOCAB // 2, hidden)
    write(directory, config, shapes)
    from safetensors.torch import load_file

    tensors = load_file(directory / "model.safetensors")
    kept = torch.arange(0, VOCAB, 2)
    tensors["d2t"] = kept - torch.arange(VOCAB // 2)
    mask = torch.zeros(VOCAB, dtype=torch.bool)
    mask[kept] = True
    tensors["t2d"] = mask
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory
