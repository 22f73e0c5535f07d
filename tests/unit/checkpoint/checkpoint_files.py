"""Small valid checkpoints to start from, written without any library."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

SIZES = {"BF16": 2, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}
CODES = {"I64": "q", "I32": "i", "BOOL": "B", "U8": "B", "I8": "b"}
HIDDEN, TARGET_VOCAB, DRAFT_VOCAB = 8, 16, 4
KEPT = (1, 2, 5, 9)

DRAFT_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": TARGET_VOCAB,
    "draft_vocab_size": DRAFT_VOCAB,
    "rope_theta": 10000.0,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]},
}
TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 32,
    "num_attention_heads": 2,
    "vocab_size": TARGET_VOCAB,
    "rope_theta": 10000.0,
}
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
DRAFT_TENSORS: Shapes = {
    "fc.weight": ("BF16", (HIDDEN, 3 * HIDDEN)),
    "midlayer.self_attn.q_proj.weight": ("BF16", (HIDDEN, 2 * HIDDEN)),
    "norm.weight": ("BF16", (HIDDEN,)),
    "lm_head.weight": ("BF16", (DRAFT_VOCAB, HIDDEN)),
    "d2t": ("I64", (DRAFT_VOCAB,)),
    "t2d": ("BOOL", (TARGET_VOCAB,)),
}


def values(name: str, dtype: str, count: int) -> bytes:
    """d2t and t2d of KEPT, zeros for the rest."""
    if name == "d2t":
        return array(CODES[dtype], [kept - i for i, kept in enumerate(KEPT)]).tobytes()
    if name == "t2d":
        return array(CODES[dtype], [int(i in KEPT) for i in range(count)]).tobytes()
    return bytes(count * SIZES[dtype])


def safetensors(tensors: Shapes) -> bytes:
    """A whole file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape) in tensors.items():
        part = values(name, dtype, prod(shape))
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def with_header(header: object, data: bytes = b"") -> bytes:
    """A file with any header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def draft(folder: Path, tensors: Shapes = DRAFT_TENSORS, **changes: Any) -> Path:
    """A draft in one file; a change to None removes the key."""
    return checkpoint(folder, {**DRAFT_CONFIG, **changes}, {"model.safetensors": tensors})


def target(folder: Path, **changes: Any) -> Path:
    """A target of a config alone."""
    return checkpoint(folder, {**TARGET_CONFIG, **changes}, {})


def checkpoint(folder: Path, config: Mapping[str, Any], files: Mapping[str, Shapes]) -> Path:
    """A folder with a config and safetensors files, with an index if there are several."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    for name, tensors in files.items():
        (folder / name).write_bytes(safetensors(tensors))
    if len(files) > 1:
        index(folder, {tensor: name for name, tensors in files.items() for tensor in tensors})
    return folder


def index(folder: Path, weight_map: object) -> None:
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
