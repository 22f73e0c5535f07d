"""Targets that public draft configs were made for, by shape.

Written down from general knowledge of the released models, not read from their files.
"""

from __future__ import annotations

from typing import Any

Row = tuple[str, int, int, int, float, int]
"""Architecture, layers, hidden size, vocabulary, rope theta, context."""

_LLAMA8: Row = ("LlamaForCausalLM", 32, 4096, 128256, 5e5, 131072)
_QWEN25_05: Row = ("Qwen2ForCausalLM", 24, 896, 151936, 1e6, 32768)
_QWEN25_VL7: Row = ("Qwen2_5_VLForConditionalGeneration", 28, 3584, 152064, 1e6, 128000)
_QWEN3_8: Row = ("Qwen3ForCausalLM", 36, 4096, 151936, 1e6, 40960)
_QWEN3_30: Row = ("Qwen3MoeForCausalLM", 48, 2048, 151936, 1e6, 40960)
_KIMI25: Row = ("KimiK25ForConditionalGeneration", 61, 7168, 163840, 5e4, 262144)
_GPT20: Row = ("GptOssForCausalLM", 24, 2880, 201088, 1.5e5, 131072)

TARGETS: dict[str, Row] = {
    "deepseek-v2-lite-eagle3": ("DeepseekV2ForCausalLM", 27, 2048, 102400, 1e4, 163840),
    "gemma3-1b-eagle3": ("Gemma3ForCausalLM", 26, 1152, 262144, 1e6, 32768),
    "gpt-oss-120B-eagle3": ("GptOssForCausalLM", 36, 2880, 201088, 1.5e5, 131072),
    "ling-flash-2.0-eagle3": ("BailingMoeV2ForCausalLM", 32, 4096, 157184, 6e5, 32768),
    "llama3-70B-ealge3": ("LlamaForCausalLM", 80, 8192, 128256, 5e5, 131072),
    "llama4-scout-17B-16E-eagle3": (
        "Llama4ForConditionalGeneration", 48, 5120, 202048, 5e5, 10485760,
    ),
    "longcat-flash-eagle3": ("LongcatFlashForCausalLM", 28, 6144, 131072, 1e7, 131072),
    "qwen2-5-vl-7b-eagle3": _QWEN25_VL7,
    "qwen2.5-0.5b-eagle3": _QWEN25_05,
    "qwen2.5-vl-32b-eagle3": (
        "Qwen2_5_VLForConditionalGeneration", 64, 5120, 152064, 1e6, 128000,
    ),
    "qwen3-235B-A22B-eagle3": ("Qwen3MoeForCausalLM", 94, 4096, 151936, 1e6, 40960),
    "qwen3-30B-A3B-eagle3": _QWEN3_30,
    "qwen3-32b-eagle3": ("Qwen3ForCausalLM", 64, 5120, 151936, 1e6, 40960),
    "qwen3-8b-eagle3": _QWEN3_8,
    "qwen3-8b-peagle": _QWEN3_8,
    "qwen3-coder-480B-A35B-instruct-eagle3": (
        "Qwen3MoeForCausalLM", 62, 6144, 151936, 1e7, 262144,
    ),
    "qwen3-coder-next-eagle3": ("Qwen3NextForCausalLM", 48, 2048, 151936, 5e6, 262144),
    "qwen3.5-35b-a3b-eagle3": (
        "Qwen3_5MoeForConditionalGeneration", 40, 2048, 248320, 1e7, 262144,
    ),
    "qwq-32B-eagle3": ("Qwen2ForCausalLM", 64, 5120, 152064, 1e6, 40960),
    "kimi_k25_eagle3_mla": _KIMI25,
    "minimax_m25_eagle3": ("MiniMaxM2ForCausalLM", 62, 3072, 200064, 5e6, 196608),
    "qwen3_8b_eagle3_mla": _QWEN3_8,
    "cosyvoice3-llm-eagle3": ("Qwen2ForCausalLM", 24, 896, 6761, 1e6, 32768),
    "hunyuan-4b-eagle3": ("HunYuanDenseV1ForCausalLM", 36, 3072, 120818, 1e4, 262144),
    "hunyuan-7b-eagle3": ("HunYuanDenseV1ForCausalLM", 32, 4096, 128167, 1e4, 262144),
    "qwen2-audio-7b-eagle3": ("Qwen2AudioForConditionalGeneration", 32, 4096, 156032, 1e4, 8192),
    "qwen2.5-3b-eagle3": ("Qwen2ForCausalLM", 36, 2048, 151936, 1e6, 32768),
    "qwen2.5-7b-eagle3": ("Qwen2ForCausalLM", 28, 3584, 152064, 1e6, 32768),
    "qwen2.5-vl-7b-eagle3-mrope": _QWEN25_VL7,
    "qwen3-0.6b-eagle3": ("Qwen3ForCausalLM", 28, 1024, 151936, 1e6, 40960),
    "qwen3-14b-eagle3": ("Qwen3ForCausalLM", 40, 5120, 151936, 1e6, 40960),
    "qwen3-30b-a3b-eagle3": _QWEN3_30,
    "qwen3-4b-eagle3": ("Qwen3ForCausalLM", 36, 2560, 151936, 1e6, 40960),
    "qwen3-vl-30b-a3b-eagle3-mrope": (
        "Qwen3VLMoeForConditionalGeneration", 48, 2048, 151936, 5e6, 262144,
    ),
    "qwen3-vl-4b-eagle3-mrope": (
        "Qwen3VLForConditionalGeneration", 36, 2560, 151936, 5e6, 262144,
    ),
    "qwen3-vl-8b-eagle3-mrope": (
        "Qwen3VLForConditionalGeneration", 36, 4096, 151936, 5e6, 262144,
    ),
    "EAGLE traineagle3": _LLAMA8,
    "AQ-MedAI/Kimi-K2-Instruct-eagle3": ("DeepseekV3ForCausalLM", 61, 7168, 163840, 5e4, 131072),
    "k-l-lambda/Kimi-K2.5-Eagle3": _KIMI25,
    "linglingdan/eagle3_for_MiniCPM4": ("MiniCPMForCausalLM", 32, 4096, 73448, 1e4, 32768),
    "lukeysong/llama3-draft": _LLAMA8,
    "nm-testing/EAGLE3-LLaMA3.1-Instruct-8B-converted": _LLAMA8,
    "inference-optimization/Mistral3_speculator_dummy": (
        "MistralLarge3ForCausalLM", 61, 7168, 131072, 1e4, 294912,
    ),
    "RedHatAI/gpt-oss-20b-speculator.eagle3": _GPT20,
    "nebius/EAGLE3-gpt-oss-20b": _GPT20,
}  # fmt: skip
MROPE = {"rope_type": "default", "mrope_section": [16, 24, 24], "type": "mrope"}
YARN = {
    "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
SCALING: dict[str, dict[str, Any]] = {
    "Qwen2_5_VLForConditionalGeneration": MROPE,
    "Qwen3VLForConditionalGeneration": MROPE,
    "Qwen3VLMoeForConditionalGeneration": MROPE,
    "GptOssForCausalLM": YARN,
    "DeepseekV2ForCausalLM": {**YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707},
    "DeepseekV3ForCausalLM": YARN,
    "KimiK25ForConditionalGeneration": {**YARN, "factor": 64.0},
}
NESTED = frozenset({
    "KimiK25ForConditionalGeneration", "Llama4ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration", "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration", "Mistral3ForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
})  # fmt: skip


def target_config(name: str) -> dict[str, Any]:
    """The target's config for a draft by its collected name."""
    architecture, layers, hidden, vocabulary, theta, context = TARGETS[name.split(" (")[0]]
    inner: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "rope_theta": theta,
        "rope_scaling": SCALING.get(architecture),
        "max_position_embeddings": context,
        "torch_dtype": "bfloat16",
    }
    outer: dict[str, Any] = {"architectures": [architecture]}
    return {**outer, "text_config": inner} if architecture in NESTED else {**outer, **inner}
