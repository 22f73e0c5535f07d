"""A target and a draft that no static rule has anything to say about, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import (
    CheckpointFacts,
    EmbeddingRows,
    Situation,
    TensorInfo,
)
from sglang_eagle3_probe.checkpoint.overrides import with_overrides

HIDDEN, VOCAB, HEAD = 64, 1000, 100
KEPT = (*range(50), *range(60, 110))
D2T = tuple(token - i for i, token in enumerate(KEPT))
TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "num_hidden_layers": 32,
    "vocab_size": VOCAB,
    "rope_theta": 500000.0,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
DRAFT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "vocab_size": VOCAB,
    "draft_vocab_size": HEAD,
    "rope_theta": 500000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]},
}
ARGUMENTS: dict[str, Any] = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
MLA_PARTS = (
    "q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj", "o_proj",
    "q_a_layernorm", "kv_a_layernorm",
)  # fmt: skip


def tensor(*shape: int, dtype: str = "BF16") -> TensorInfo:
    return TensorInfo(dtype, shape, "model.safetensors")


def layer(prefix: str, attention: tuple[str, ...] = PROJECTIONS) -> dict[str, TensorInfo]:
    names = [f"self_attn.{n}" for n in attention]
    names += [f"mlp.{n}" for n in ("gate_proj", "up_proj", "down_proj")]
    names += ["input_layernorm", "hidden_norm", "post_attention_layernorm"]
    return {f"{prefix}{name}.weight": tensor(HIDDEN, HIDDEN) for name in names}


def tensors(prefix: str = "midlayer.", *, mla: bool = False) -> dict[str, TensorInfo]:
    return {
        "fc.weight": tensor(HIDDEN, 3 * HIDDEN),
        "norm.weight": tensor(HIDDEN),
        "lm_head.weight": tensor(HEAD, HIDDEN),
        "d2t": tensor(HEAD, dtype="I64"),
        "t2d": tensor(VOCAB, dtype="BOOL"),
        **layer(prefix, MLA_PARTS if mla else PROJECTIONS),
    }


def changed(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """With keys set, and those whose new value is ``...`` taken away."""
    merged = {**mapping, **changes}
    return {name: value for name, value in merged.items() if value is not ...}


def situation(
    *,
    draft: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    release: str = "0.5.23",
    ids: Any = None,
    d2t: tuple[int, ...] | None = D2T,
    kept: tuple[int, ...] | None = KEPT,
    t2d_size: int | None = VOCAB,
    counts: Mapping[int, int] | None = None,
    config_only: bool = False,
    trained: tuple[int, ...] | None = None,
    trained_theta: float | None = None,
    source_patched: bool = False,
    quantization_file: Mapping[str, Any] | None = None,
    embedding_rows: EmbeddingRows | None = None,
) -> Situation:
    """The clean pair with these changes; ``ids`` goes under ``eagle_config``."""
    config = changed(DRAFT, draft or {})
    if ids is not None:
        config["eagle_config"] = {
            **config.get("eagle_config", {}),
            "eagle_aux_hidden_state_layer_ids": ids,
        }
    facts = CheckpointFacts(
        "draft",
        config,
        changed(tensors(), weights or {}),
        d2t=d2t,
        t2d_kept=kept,
        t2d_size=t2d_size,
        trained_output_ids=trained,
        trained_rope_theta=trained_theta,
        quantization_file=quantization_file,
    )
    if config_only:
        facts = replace(facts, tensors=None, d2t=None, t2d_kept=None, t2d_size=None)
    made = Situation(
        CheckpointFacts("target", changed(TARGET, target or {}), None),
        facts,
        release,
        changed(ARGUMENTS, arguments or {}),
        counts,
        source_patched=source_patched,
        embedding_rows=embedding_rows,
    )
    return with_overrides(made)


def renamed(prefix: str, *, mla: bool = False) -> dict[str, Any]:
    """Weight changes that put the draft layer under another name."""
    gone = dict.fromkeys(layer("midlayer."), ...)
    return {**gone, **layer(prefix, MLA_PARTS if mla else PROJECTIONS)}


MLA_DRAFT: dict[str, Any] = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "kimi_k2",
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
}
KIMI: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "num_hidden_layers": 61,
}
DEEPSEEK: dict[str, Any] = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61}
KIMI_IDS = [1, 29, 57]
