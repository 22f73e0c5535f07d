"""Drafts with random weights in every shape that SGLang's draft classes take, and their inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from contract.served.drafts import (
    DRAFT_VOCAB,
    HEAD_DIM,
    HIDDEN,
    MLA,
    PLAIN,
    VOCAB,
    Draft,
    layer,
    made_up,
    shapes_of,
    without,
)

ROWS, STEPS = 24, 3
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
    "beta_fast": 32, "beta_slow": 1,
}  # fmt: skip
ROPES: Mapping[str, Mapping[str, Any]] = {
    "theta 500000": {"rope_theta": 500000.0},
    "rope_parameters": {
        "rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0},
    },
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "linear, old name": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "yarn": {"rope_scaling": YARN},
    "yarn, not truncated": {"rope_scaling": {**YARN, "truncate": False}},
    "yarn, mscale": {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}},
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "partial rotary": {"partial_rotary_factor": 0.5},
    "partial rotary in the block": {
        "rope_theta": None, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
    "both blocks": {
        "rope_theta": 5e5,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0},
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "an empty block": {"rope_parameters": {"rope_theta": 7.0}, "rope_scaling": {}},
    "pairs": {"rope_is_neox_style": False},
    "no max_position_embeddings": {
        "max_position_embeddings": None, "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    },
}  # fmt: skip


def served() -> Iterator[Draft]:
    """Everything that SGLang can run."""
    incomplete = ("no fc", "no norm, no k_proj", "two layers by config only", "odd heads")
    for case in made_up():
        if case.name in incomplete or "MLA" in case.name or "null" in case.name:
            continue
        if case.name in (
            "tied",
            "bias",
            "no draft_vocab_size",
            "strange names",
            "trainer's class name",
        ):
            continue  # other classes of error, or ones that the cases below stand for
        yield case
    for name, change in ROPES.items():
        config = {key: value for key, value in {**PLAIN, **change}.items() if value is not None}
        yield Draft(f"rope: {name}", config, shapes_of(config))
    biased = {**PLAIN, "bias": True}  # gives the attention's output a bias too
    biases = {"fc.bias": (HIDDEN,), "midlayer.self_attn.o_proj.bias": (HIDDEN,)}
    yield Draft("bias", biased, {**shapes_of(biased), **biases})
    norm_output = {**PLAIN, "norm_output": True}
    yield Draft("norm_output", norm_output, shapes_of(norm_output))
    grouped = {**PLAIN, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": HEAD_DIM}
    shapes = shapes_of(grouped)
    heads = {"q_proj": 4, "k_proj": 2, "v_proj": 2}
    shapes |= {
        f"midlayer.self_attn.{name}.weight": (count * HEAD_DIM, 2 * HIDDEN)
        for name, count in heads.items()
    }
    shapes["midlayer.self_attn.o_proj.weight"] = (HIDDEN, 4 * HEAD_DIM)
    yield Draft("grouped heads, wider than hidden", grouped, shapes)
    yield Draft("no last norm", PLAIN, without(shapes_of(PLAIN), "norm.weight"))
    three = {**PLAIN, "num_hidden_layers": 3, "norm_output": True}
    more = [layer(f"layers.{i}.", mla=False, first=False) for i in (1, 2)]
    yield Draft("three layers", three, {**shapes_of(three, "layers.0."), **more[0], **more[1]})
    yield Draft("states of the draft's width", PLAIN, shapes_of(PLAIN))
    yield Draft("MLA", MLA, shapes_of(MLA, "layers.0."))
    stretched = {**MLA["rope_scaling"], "factor": 8.0, "original_max_position_embeddings": 64}
    for name, change in {
        "MLA midlayer": {},
        "MLA norm_output": {"norm_output": True},
        "MLA yarn": {"rope_scaling": stretched},
        "MLA yarn, magnitudes": {"rope_scaling": {**stretched, "mscale_all_dim": 0.5}},
        "MLA halves": {"rope_interleave": False},
    }.items():
        config = {**MLA, **change}
        yield Draft(name, config, shapes_of(config))
    normed = {**MLA, "fc_norm": True}
    norms = {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(3)}
    yield Draft("MLA fc_norm", normed, {**shapes_of(normed, "layers.0."), **norms})


def write(case: Draft, folder: Path, seed: int) -> Path:
    """The checkpoint with random weights, a target's folder, and inputs."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    case.write(folder)
    tensors = {}
    for name, shape in case.shapes.items():
        if name.endswith("d2t"):
            kept = torch.randperm(VOCAB, generator=generator)[: shape[0]].sort().values
            tensors[name] = kept - torch.arange(shape[0])
        elif name.endswith("t2d"):
            tensors[name] = torch.arange(VOCAB) < DRAFT_VOCAB
        elif "norm" in name:
            tensors[name] = 1 + noise(*shape, scale=0.2)
        elif len(shape) == 2:
            tensors[name] = noise(*shape, scale=1.5 / shape[1] ** 0.5)
        else:
            tensors[name] = noise(*shape, scale=0.3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    width = case.config.get("target_hidden_size") or HIDDEN
    ids = (case.config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    slots = case.config.get("num_aux_hidden_states") or (len(ids) if ids else 3)
    aux = noise(ROWS, HIDDEN if case.name == "states of the draft's width" else slots * width)
    next_ids = torch.randint(0, VOCAB, (ROWS + STEPS - 1,), generator=generator)
    inputs = {"aux": aux, "next_ids": next_ids, "positions": torch.arange(ROWS) + 100}
    save_file(inputs, folder / "inputs.safetensors")
    target = {"embedding": noise(VOCAB, width), "head": noise(VOCAB, width, scale=0.1)}
    save_file(target, folder / "embedding.safetensors")
    (folder / "target").mkdir()
    names = {
        "model.embed_tokens.weight": target["embedding"],
        "lm_head.weight": target["head"],
        "model.norm.weight": torch.ones(width),
    }
    save_file(names, folder / "target" / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": width, "vocab_size": VOCAB}
    (folder / "target" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
