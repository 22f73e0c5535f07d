"""Small random models of every target family, written by Transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAYERS = 8
_BASE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_YARN: dict[str, Any] = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0,
    "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
}  # fmt: skip

FAMILIES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"sliding_window": None},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    "Qwen2MoeForCausalLM": {
        **_EXPERTS,
        "num_experts": 4,
        "shared_expert_intermediate_size": 32,
        "norm_topk_prob": True,
    },
    "Qwen3MoeForCausalLM": {**_EXPERTS, "num_experts": 4, "norm_topk_prob": True},
    "Glm4MoeForCausalLM": {
        **_EXPERTS,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "use_qk_norm": True,
    },
    "GptOssForCausalLM": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 4,
        "rope_parameters": _YARN,
    },
}
"""Architecture -> what its config says beyond the common part. All experts are real ones."""


def write(architecture: str, folder: Path) -> Path:
    """Random weights, float32, large enough that every layer changes the stream visibly."""
    import torch
    import transformers

    torch.manual_seed(0)
    config_class = getattr(transformers, architecture.replace("ForCausalLM", "Config"))
    model = getattr(transformers, architecture)(config_class(**_BASE, **FAMILIES[architecture]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=0.1)
            if name.endswith("sinks"):  # SGLang keeps them in bfloat16, whatever the rest is
                parameter.copy_(parameter.bfloat16().float())
    model.float().save_pretrained(folder / architecture)
    return folder / architecture
