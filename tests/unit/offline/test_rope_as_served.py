"""The rotary settings of a draft are what SGLang reads off the object Transformers makes of it."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", minversion="5")
pytest.importorskip("torch")

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, CheckpointFacts  # noqa: E402
from sglang_eagle3_probe.offline.drafts.draft_plan import served_plan  # noqa: E402
from sglang_eagle3_probe.offline.drafts.rotary import KINDS, RopeSettings  # noqa: E402

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
LATENT = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 2, "kv_lora_rank": 8,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 16, "v_head_dim": 8,
}  # fmt: skip
LATENT_NAMES = {"layers.0.self_attn.kv_b_proj.weight": (32, 8)}
REQUIRED = ("factor", "low_freq_factor", "high_freq_factor")
"""Transformers refuses scalings that lack theirs."""
NUMBERS = (*REQUIRED, "mscale", "mscale_all_dim", "alpha")


def random_block(pick: random.Random) -> Any:
    """A rope block as trainers and hands write them; also empty or null."""
    if pick.random() < 0.15:
        return pick.choice([None, {}])
    block: dict[str, Any] = {}
    for name in ("rope_type", "type"):
        if pick.random() < 0.5:
            block[name] = pick.choice(KINDS)
    if pick.random() < 0.5:
        block["rope_theta"] = pick.choice([7.0, 5e5, 1000000])
    if pick.random() < 0.3:
        block["partial_rotary_factor"] = 0.5
    if pick.random() < 0.3:
        block["original_max_position_embeddings"] = pick.choice([64, 128])
    if pick.random() < 0.15:
        block["mrope_section"] = [4, 6, 6]
    needed = REQUIRED if block.keys() & {"rope_type", "type"} else ()
    for name in NUMBERS:
        if name in needed or pick.random() < 0.3:
            block[name] = pick.choice([1.5, 4.0])
    return block


def random_config(pick: random.Random, base: dict[str, Any]) -> dict[str, Any]:
    config = dict(base)
    for name in ("rope_parameters", "rope_scaling"):
        if pick.random() < 0.6:
            config[name] = random_block(pick)
    for name, values in {
        "rope_theta": [9.0, 250000],
        "partial_rotary_factor": [0.5, 1.0],
        "max_position_embeddings": [256, 4096],
        "original_max_position_embeddings": [32, 512],
        "rope_is_neox_style": [True, False],
        "rope_interleave": [True, False],
    }.items():
        if pick.random() < 0.4:
            config[name] = pick.choice(values)
    return config


def of_llama(config: Any) -> RopeSettings:
    """``LlamaModel``, ``LlamaDecoderLayer`` and ``LlamaAttention``, SGLang 0.5.23."""
    scaling = config.rope_parameters
    if "mrope_section" in scaling:
        scaling["rope_type"] = "default"
    if getattr(config, "original_max_position_embeddings", None):
        scaling["original_max_position_embeddings"] = config.original_max_position_embeddings
    return RopeSettings(
        size=int(getattr(config, "partial_rotary_factor", 1) * config.head_dim),
        theta=scaling.get("rope_theta", 10000),
        scaling=scaling,
        positions=getattr(config, "max_position_embeddings", 8192),
        pairs=not getattr(config, "rope_is_neox_style", True),
    )


def of_latent(config: Any) -> RopeSettings:
    """``Eagle3MLADecoderLayer`` and ``DeepseekV2AttentionMLA``, SGLang 0.5.23."""
    scaling = config.rope_parameters
    return RopeSettings(
        size=config.qk_rope_head_dim,
        theta=scaling.get("rope_theta", 10000),
        scaling=scaling if scaling.get("rope_type") != "default" else None,
        positions=config.max_position_embeddings,
        pairs=getattr(config, "rope_interleave", True),
        latent=True,
    )


def told(settings: RopeSettings) -> dict[str, Any]:
    """All that decides angles; a block of kind ``default`` decides none."""
    names = (*NUMBERS, "original_max_position_embeddings")
    scaled = settings.kind != "default"
    default = {"original_max_position_embeddings": settings.positions}
    return {
        "size": settings.size,
        "theta": settings.theta,
        "kind": settings.kind,
        "positions": settings.positions,
        "pairs": settings.pairs,
        "numbers": {n: settings.number(n, default.get(n, -1)) for n in names if scaled},
    }


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", ["llama", "latent"])
def test_settings(kind: str, seed: int) -> None:
    config = random_config(random.Random(seed), LLAMA if kind == "llama" else LATENT)
    names = {} if kind == "llama" else LATENT_NAMES
    mine = served_plan(CheckpointFacts("x", copy.deepcopy(config), None), names).rope
    made = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    assert told(mine) == told((of_llama if kind == "llama" else of_latent)(made)), config


@pytest.mark.parametrize("theta", [0, -5.0])
def test_no_theta_to_rotate_with(theta: float) -> None:
    with pytest.raises(CheckpointError, match="a positive number is expected"):
        served_plan(CheckpointFacts("x", {**LLAMA, "rope_theta": theta}, None), {})
