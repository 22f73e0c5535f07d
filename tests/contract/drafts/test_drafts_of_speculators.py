"""The offline draft, run as trained, computes what the model class of speculators does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft  # noqa: E402

WORKER = Path(__file__).with_name("speculators_module.py")
RELEASE = "0.9.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
ENVIRONMENT = CACHE / "sglang-eagle3-probe" / "environments" / f"speculators-{RELEASE}"
HIDDEN, HEADS, KEYS, HEAD_DIM, INNER, VOCAB, DRAFT_VOCAB = 64, 4, 2, 16, 96, 256, 64
ROWS, STEPS = 24, 3
ROUNDING = 2e-5
LAYER: dict[str, Any] = {
    "model_type": "llama", "hidden_size": HIDDEN, "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS, "head_dim": HEAD_DIM, "intermediate_size": INNER,
    "vocab_size": VOCAB, "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 512, "attention_bias": False, "mlp_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 40000.0},
}  # fmt: skip
QWEN = {"model_type": "qwen3"}
WINDOW = {**QWEN, "sliding_window": 6, "use_sliding_window": True,
          "layer_types": ["sliding_attention"]}  # fmt: skip
LLAMA3 = {
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    },
}  # fmt: skip
CASES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "plain": ({}, {}),
    "norm_before_residual": ({"norm_before_residual": True}, {}),
    "norm_before_fc, norm_output": ({"norm_before_fc": True, "norm_output": True}, {}),
    "fc_norm": ({"fc_norm": True}, {}),
    "norm_output, norm_before_residual": (
        {"norm_output": True, "norm_before_residual": True}, {},
    ),
    "q_norm and k_norm": ({}, QWEN),
    "attention_bias": ({}, {"attention_bias": True}),
    "sliding window": ({}, WINDOW),
    "two layers": ({}, {"num_hidden_layers": 2}),
    "two layers, norms and biases": (
        {"norm_before_residual": True, "norm_output": True},
        {**QWEN, "num_hidden_layers": 2, "attention_bias": True},
    ),
    "llama3 rope": ({}, LLAMA3),
    "four states": ({"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 8]}, {}),
}  # fmt: skip


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes as speculators saves them."""
    layer = config["transformer_layer_config"]
    slots = len(config.get("eagle_aux_hidden_state_layer_ids") or (1, 2, 3))
    found: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (VOCAB, HIDDEN), "fc.weight": (HIDDEN, slots * HIDDEN),
        "norm.weight": (HIDDEN,), "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
        "d2t": (DRAFT_VOCAB,), "t2d": (VOCAB,), "layers.0.hidden_norm.weight": (HIDDEN,),
    }  # fmt: skip
    if config.get("norm_before_fc"):
        found["input_norm.weight"] = (slots * HIDDEN,)
    if config.get("fc_norm"):
        found |= {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(slots)}
    for i in range(layer["num_hidden_layers"]):
        width = HIDDEN if i else 2 * HIDDEN
        sizes = {"q_proj": HEADS, "k_proj": KEYS, "v_proj": KEYS}
        at = f"layers.{i}.self_attn."
        for name, count in sizes.items():
            found[f"{at}{name}.weight"] = (count * HEAD_DIM, width)
            if layer["attention_bias"]:
                found[f"{at}{name}.bias"] = (count * HEAD_DIM,)
        found[f"{at}o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
        if layer["attention_bias"]:
            found[f"{at}o_proj.bias"] = (HIDDEN,)
        if layer["model_type"] == "qwen3":
            found |= {f"{at}{n}.weight": (HEAD_DIM,) for n in ("q_norm", "k_norm")}
        found |= {
            f"layers.{i}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"layers.{i}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"layers.{i}.mlp.down_proj.weight": (HIDDEN, INNER),
            f"layers.{i}.input_layernorm.weight": (HIDDEN,),
            f"layers.{i}.post_attention_layernorm.weight": (HIDDEN,),
        }
    return found


def write(folder: Path, outer: Mapping[str, Any], inner: Mapping[str, Any], seed: int) -> Path:
    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    config = {
        "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": DRAFT_VOCAB, "transformer_layer_config": {**LAYER, **inner}, **outer,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    kept = torch.randperm(VOCAB, generator=generator)[:DRAFT_VOCAB].sort().values
    tensors = {}
    for name, shape in shapes(config).items():
        if name == "d2t":
            tensors[name] = kept - torch.arange(DRAFT_VOCAB)
        elif name == "t2d":
            tensors[name] = torch.isin(torch.arange(VOCAB), kept)
        elif "norm" in name:
            tensors[name] = 1 + 0.2 * torch.randn(*shape, generator=generator)
        else:
            scale = 1.5 / shape[-1] ** 0.5 if len(shape) == 2 else 0.3
            tensors[name] = scale * torch.randn(*shape, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    slots = len(config.get("eagle_aux_hidden_state_layer_ids") or (1, 2, 3))
    inputs = {
        "aux": torch.randn(ROWS, slots * HIDDEN, generator=generator),
        "next_ids": torch.randint(0, VOCAB, (ROWS + STEPS - 1,), generator=generator),
        "positions": torch.arange(ROWS) + 1,
    }
    save_file(inputs, folder / "inputs.safetensors")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not (ENVIRONMENT / ".complete").is_file():
        pytest.skip(f"speculators {RELEASE} is not here; scripts/speculators_environment brings it")
    work = tmp_path_factory.mktemp("speculators-drafts")
    made = {
        name: write(work / f"case-{n}", outer, inner, n)
        for n, (name, (outer, inner)) in enumerate(CASES.items())
    }
    done = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), str(WORKER), *map(str, made.values())],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.mark.parametrize("name", CASES)
def test_steps(name: str, folders: dict[str, Path]) -> None:
    folder = folders[name]
    theirs = load_file(folder / "speculators.safetensors")
    given = load_file(folder / "inputs.safetensors")
    draft = ReferenceDraft.load(folder).as_trained()
    features = draft.features(given["aux"])
    outputs = draft.steps(given["next_ids"], features, given["positions"], STEPS)
    for step, output in enumerate(outputs):
        for what, mine in (("logits", draft.logits(output.normed)), ("hidden", output.hidden)):
            other = theirs[f"{what}.{step}"]
            assert mine.shape == other.shape
            assert (mine - other).abs().max() <= ROUNDING * other.abs().max(), (what, step)
