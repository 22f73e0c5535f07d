"""Small configs of the target classes whose handling of layer ids the doctor knows."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
}
MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
}
MLA: dict[str, Any] = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "moe_layer_freq": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "rope_scaling": {
        "type": "yarn", "rope_type": "yarn", "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 512,
    },
}  # fmt: skip
MODEL_TYPES: dict[str, str] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Glm4MoeForCausalLM": "glm4_moe",
    "GptOssForCausalLM": "gpt_oss",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "Gemma3ForCausalLM": "gemma3_text",
    "ApertusForCausalLM": "apertus",
    "MistralForCausalLM": "mistral",
}


def small_target(architecture: str, layers: int) -> dict[str, Any] | None:
    """A config of this class with so many layers; None: no such shape was written down."""
    if architecture not in MODEL_TYPES:
        return None
    config = {
        **BASE,
        "architectures": [architecture],
        "model_type": MODEL_TYPES[architecture],
        "num_hidden_layers": layers,
    }
    if "Moe" in architecture or architecture in {"GptOssForCausalLM", "MiniMaxM2ForCausalLM"}:
        config |= MOE
    if architecture.startswith("Deepseek"):
        config |= {**MOE, **MLA, "head_dim": 16}
    if architecture in {"Glm4MoeForCausalLM"} or architecture.startswith("Deepseek"):
        config["first_k_dense_replace"] = layers  # experts would want kernels for a GPU
    if architecture in {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}:
        config["mlp_only_layers"] = list(range(layers))
    if architecture == "GptOssForCausalLM":
        config |= {"sliding_window": 64, "layer_types": ["full_attention"] * layers}
    if architecture == "MiniMaxM2ForCausalLM":
        config |= {"rotary_dim": 16, "use_qk_norm": False, "scoring_func": "sigmoid"}
    if architecture == "ApertusForCausalLM":
        config["hidden_act"] = "xielu"
    if architecture == "Gemma3ForCausalLM":
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 32,
            "sliding_window": 64,
            "rope_local_base_freq": 10000.0,
        }
    return config
