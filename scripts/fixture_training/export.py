"""Writes the fixture directories: configs, bfloat16 weights, and the check against Hugging Face."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .corpus import END_OF_TEXT_ID
from .draft_model import Draft
from .target_model import MAX_POSITIONS, NORM_EPS, ROPE_THETA, Target, TargetShape

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from fixtures.weights import save_weights, unpack

EAGLE3_ARCHITECTURE = "LlamaForCausalLMEagle3"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _common(shape_kind: str) -> dict[str, Any]:
    return {
        "model_type": shape_kind,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def deepseek_config(shape: TargetShape) -> dict[str, Any]:
    """A dense DeepSeek-V3: every layer lies below ``first_k_dense_replace``.

    The yarn entry with factor 1.0 changes nothing; SGLang's class asks for it.
    """
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        **_common("deepseek_v3"),
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_heads,
        "q_lora_rank": shape.q_lora_rank,
        "kv_lora_rank": shape.kv_lora_rank,
        "qk_nope_head_dim": shape.qk_nope_head_dim,
        "qk_rope_head_dim": shape.qk_rope_head_dim,
        "v_head_dim": shape.v_head_dim,
        "rope_interleave": True,
        "rope_scaling": {
            "type": "yarn",
            "rope_type": "yarn",
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": MAX_POSITIONS,
        },
        "first_k_dense_replace": shape.num_layers,
        "moe_layer_freq": 1,
        "moe_intermediate_size": 96,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    }


def llama_config(shape: TargetShape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        **_common("llama"),
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "mlp_bias": False,
    }


def draft_config(draft: Draft, aux_layer_ids: list[int] | None) -> dict[str, Any]:
    """``aux_layer_ids`` are output ids; None leaves the choice to the server's default."""
    shape = draft.shape
    config: dict[str, Any] = {
        "architectures": [EAGLE3_ARCHITECTURE],
        **_common("llama"),
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
    }
    if aux_layer_ids is not None:
        config["eagle_config"] = {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": aux_layer_ids,
        }
    return config


def write_model(directory: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Write ``config.json`` and bfloat16 ``model.safetensors.xz`` (integer tensors as they are)."""
    write_json(directory / "config.json", config)
    tensors = {
        name: (w.bfloat16() if w.is_floating_point() else w).cpu().contiguous()
        for name, w in state.items()
    }
    save_weights(tensors, directory)


def write_target(directory: Path, target: Target) -> None:
    configs = {"deepseek": deepseek_config, "llama": llama_config}
    write_model(directory, configs[target.shape.kind](target.shape), target.state_dict())


def check_against_hf(directory: Path, target: Target, ids: Tensor) -> float:
    """Largest difference of the logits and boundaries to Hugging Face's class, for token ids
    (batch, length). Raises if it is more than float32 rounding."""
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory(prefix="fixtures-") as plain:
        unpack(directory, Path(plain))
        model = AutoModelForCausalLM.from_pretrained(
            plain, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad():
            theirs = model(ids, output_hidden_states=True)
            ours = target.boundaries(ids)
            # Hugging Face's last entry is after the final norm
            pairs = [*zip(ours[:-1], theirs.hidden_states[:-1], strict=True)]
            pairs.append((target.logits_of(ours[-1]), theirs.logits))
            worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    finally:
        torch.set_float32_matmul_precision(precision)
    if worst > 1e-4:
        raise RuntimeError(f"{directory.name} differs from Hugging Face by {worst:.2e}")
    return worst


def write_draft(
    directory: Path, draft: Draft, aux_layer_ids: list[int] | None, accuracy: dict[str, Any]
) -> None:
    write_model(directory, draft_config(draft, aux_layer_ids), draft.state_dict())
    write_json(directory / "trainer_accuracy.json", accuracy)
