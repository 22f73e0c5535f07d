"""Small draft checkpoints in the namings and with the flags that real ones have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, HEADS, HEAD_DIM, INNER, VOCAB, DRAFT_VOCAB = 64, 2, 32, 96, 256, 64
SMALL: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "intermediate_size": INNER,
    "vocab_size": VOCAB,
    "torch_dtype": "float32",
    "max_position_embeddings": 512,
}
MLA_SIZES: dict[str, Any] = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}
PLAIN: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "num_hidden_layers": 1,
    "draft_vocab_size": DRAFT_VOCAB,
    **SMALL,
}
MLA: dict[str, Any] = {
    **PLAIN,
    **MLA_SIZES,
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "kimi_k2",
    "n_routed_experts": 4,
    "moe_intermediate_size": 32,
    "rope_scaling": {  # SGLang's rope for CPUs wants a block; what is in it does not matter here
        "type": "yarn", "rope_type": "yarn", "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 512,
    },
}  # fmt: skip
LEGACY_NORMS = ("aux_norm_low.weight", "aux_norm_mid.weight", "aux_norm_high.weight")


@dataclass(frozen=True)
class Draft:
    """A draft as its files are: the config, and names with shapes."""

    name: str
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        tensors: dict[str, Tensor] = {
            name: torch.ones(shape) for name, shape in self.shapes.items()
        }
        for name in tensors:
            if name.endswith("d2t"):
                tensors[name] = torch.zeros(self.shapes[name], dtype=torch.long)
            elif name.endswith("t2d"):
                tensors[name] = torch.arange(VOCAB) < DRAFT_VOCAB  # the first tokens, so d2t is 0
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder


def layer(prefix: str, *, mla: bool, first: bool = True) -> dict[str, tuple[int, ...]]:
    """One draft layer's tensors; the first takes embedding and state side by side."""
    width = 2 * HIDDEN if first else HIDDEN
    heads = HEADS * HEAD_DIM
    attention = {
        "q_proj": (heads, width),
        "k_proj": (heads, width),
        "v_proj": (heads, width),
        "o_proj": (HIDDEN, heads),
    }
    if mla:
        attention = {
            "q_a_proj": (32, width),
            "q_a_layernorm": (32,),
            "q_b_proj": (HEADS * 32, 32),
            "kv_a_proj_with_mqa": (48, width),
            "kv_a_layernorm": (32,),
            "kv_b_proj": (HEADS * 32, 32),
            "o_proj": (HIDDEN, HEADS * 16),
        }
    names = {f"self_attn.{name}": shape for name, shape in attention.items()}
    names |= {"mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN)}
    names |= {"mlp.down_proj": (HIDDEN, INNER)}
    names |= dict.fromkeys(
        ("input_layernorm", "hidden_norm", "post_attention_layernorm"), (HIDDEN,)
    )
    return {f"{prefix}{name}.weight": shape for name, shape in names.items()}


def shapes_of(
    config: Mapping[str, Any], prefix: str = "midlayer.", *, embedding: bool = False
) -> dict[str, tuple[int, ...]]:
    """A whole checkpoint for this config in one naming."""
    ids = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    states = config.get("num_aux_hidden_states") or (len(ids) if ids else 3)
    width = config.get("target_hidden_size") or HIDDEN
    rows = config.get("draft_vocab_size") or VOCAB
    mla = "q_lora_rank" in config and "kv_lora_rank" in config
    outer: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, states * width),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (rows, HIDDEN),
        **layer(prefix, mla=mla),
    }
    if rows < VOCAB:
        outer |= {"d2t": (rows,), "t2d": (VOCAB,)}
    if embedding:
        outer["embed_tokens.weight"] = (VOCAB, HIDDEN)
    return outer


def in_model(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Everything but the head and the maps under ``model.``, as Transformers would save it."""
    bare = ("lm_head.", "d2t", "t2d")
    return {n if n.startswith(bare) else f"model.{n}": shape for n, shape in shapes.items()}


def without(shapes: Mapping[str, tuple[int, ...]], *names: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if name not in names}


def made_up() -> Iterator[Draft]:
    """Drafts with each flag, naming and loss that the rules speak about."""
    plain = shapes_of(PLAIN)
    yield Draft("plain", PLAIN, plain)
    yield Draft("names layers.0", PLAIN, shapes_of(PLAIN, "layers.0."))
    yield Draft("names model.layers.0", PLAIN, in_model(shapes_of(PLAIN, "layers.0.")))
    yield Draft("names model.midlayer", PLAIN, in_model(plain))
    yield Draft("own embedding", PLAIN, shapes_of(PLAIN, embedding=True))
    yield Draft("no fc", PLAIN, without(plain, "fc.weight"))
    yield Draft(
        "no norm, no k_proj",
        PLAIN,
        without(plain, "norm.weight", "midlayer.self_attn.k_proj.weight"),
    )
    yield Draft(
        "strange names",
        PLAIN,
        {
            **without(plain, "norm.weight"),
            "final_norm.weight": (HIDDEN,),
            "adapter.weight": (4,),
            "midlayer.self_attn.q_norm.weight": (HEAD_DIM,),
            "midlayer.self_attn.rotary_emb.inv_freq": (16,),
        },
    )
    norms = {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(3)}
    yield Draft("fc_norm with weights", {**PLAIN, "fc_norm": True}, {**plain, **norms})
    yield Draft("fc_norm without weights", {**PLAIN, "fc_norm": True}, plain)
    yield Draft("fc_norm weights, no flag", PLAIN, {**plain, **norms})
    yield Draft(
        "use_aux_norm",
        {**PLAIN, "use_aux_norm": True},
        {**plain, **dict.fromkeys(LEGACY_NORMS, (HIDDEN,))},
    )
    before = {"input_norm.weight": (3 * HIDDEN,)}
    yield Draft("norm_before_fc", {**PLAIN, "norm_before_fc": True}, {**plain, **before})
    yield Draft(
        "norm_before_fc in eagle_config",
        {**PLAIN, "eagle_config": {"norm_before_fc": True}},
        {**plain, **before},
    )
    yield Draft(
        "attention_bias",
        {**PLAIN, "attention_bias": True},
        {
            **plain,
            "midlayer.self_attn.q_proj.bias": (HIDDEN,),
            "midlayer.self_attn.o_proj.bias": (HIDDEN,),
        },
    )
    yield Draft("bias", {**PLAIN, "bias": True}, {**plain, "fc.bias": (HIDDEN,)})
    two = {**PLAIN, "num_hidden_layers": 2}
    yield Draft(
        "two layers",
        two,
        {**shapes_of(two, "layers.0."), **layer("layers.1.", mla=False, first=False)},
    )
    yield Draft("two layers by config only", two, plain)
    four = {**PLAIN, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 8]}}
    yield Draft("four states", four, shapes_of(four))
    named = {**PLAIN, "num_aux_hidden_states": 2}
    yield Draft("num_aux_hidden_states 2", named, shapes_of(named))
    yield Draft(
        "head of the target",
        {**PLAIN, "draft_vocab_size": None},
        without(shapes_of({**PLAIN, "draft_vocab_size": None}), "lm_head.weight"),
    )
    no_key = {key: value for key, value in PLAIN.items() if key != "draft_vocab_size"}
    yield Draft("no draft_vocab_size", no_key, shapes_of(no_key))
    tied = {**no_key, "tie_word_embeddings": True}
    yield Draft("tied", tied, without(shapes_of(tied), "lm_head.weight"))
    wide = {**PLAIN, "target_hidden_size": 96}
    yield Draft("target_hidden_size 96", wide, shapes_of(wide, embedding=True))
    yield Draft("target_hidden_size null", {**PLAIN, "target_hidden_size": None}, plain)
    yield Draft("MLA", MLA, shapes_of(MLA, "layers.0."))
    yield Draft("MLA midlayer", MLA, shapes_of(MLA))
    yield Draft("MLA model.", MLA, in_model(shapes_of(MLA, "layers.0.")))
    yield Draft("MLA fc_norm", {**MLA, "fc_norm": True}, {**shapes_of(MLA, "layers.0."), **norms})
    yield Draft(
        "MLA no fc, extra name",
        MLA,
        {**without(shapes_of(MLA, "layers.0."), "fc.weight"), "adapter.weight": (4,)},
    )
    yield Draft(
        "trainer's class name", {**PLAIN, "architectures": ["Eagle3LlamaForCausalLM"]}, plain
    )
    yield Draft(
        "odd heads",
        {
            **{k: v for k, v in PLAIN.items() if k != "head_dim"},
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
        },
        plain,
    )


def converted(config: Mapping[str, Any]) -> dict[str, Any]:
    """A speculators config with its layer's keys moved up, as the doctor's fix says."""
    outer = {key: value for key, value in config.items() if key != "transformer_layer_config"}
    return {
        **config["transformer_layer_config"],
        **outer,
        "architectures": ["LlamaForCausalLMEagle3"],
    }


def of_public_config(name: str, config: Mapping[str, Any]) -> Draft:
    """A public config with its sizes made small, and the checkpoint its trainer would write."""
    small = {**config, **{key: value for key, value in SMALL.items() if key in config}}
    small["vocab_size"] = VOCAB
    for key, value in {**MLA_SIZES, "target_hidden_size": HIDDEN}.items():
        if config.get(key) is not None:
            small[key] = value
    if isinstance(config.get("draft_vocab_size"), int):
        own = config["draft_vocab_size"] == config.get("vocab_size")
        small["draft_vocab_size"] = VOCAB if own else DRAFT_VOCAB
    small["head_dim"] = HEAD_DIM
    for key in ("rope_scaling", "rope_parameters"):
        block = small.get(key)
        if isinstance(block, Mapping) and "mrope_section" in block:
            small[key] = {**block, "mrope_section": [4, 6, 6]}
    prefix = "layers.0." if "speculators_model_type" in config else "midlayer."
    return Draft(name, small, shapes_of(small, prefix))
