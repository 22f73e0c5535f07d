"""What draft_module says of parameters is what each release's own draft class builds.

The class of the release is executed with stand-ins for SGLang's layers (the decoder layer's own
parts, built in ``llama.py``, are a stand-in too). Skipped without sources in the cache.
"""

from __future__ import annotations

import builtins
import contextlib
import re
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from unit.static_rules.situations import MLA_DRAFT, situation
from unit.static_rules.test_real_loaders import SOURCES

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Finding
from sglang_eagle3_probe.rules.static import draft_module
from sglang_eagle3_probe.rules.static.registry import judge

torch = pytest.importorskip("torch")
nn = torch.nn
FILLER = dict.fromkeys(
    (
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "rms_norm_eps",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
    ),
    1,
)
CONFIGS: tuple[dict[str, Any], ...] = (
    {}, {"fc_norm": True}, {"use_aux_norm": True, "norm_output": True}, {"norm_before_fc": True},
    {"bias": True}, {"attention_bias": True}, {"num_hidden_layers": 2},
    {"num_aux_hidden_states": 2, "fc_norm": True}, {"draft_vocab_size": None},
    {"tie_word_embeddings": True}, {"target_hidden_size": 128}, {"target_hidden_size": None},
    {"draft_vocab_size": ...}, {"ids": [1, 9, 15, 28], "fc_norm": True}, {"q_lora_rank": None},
)  # fmt: skip
STACKS = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}


class Weight(nn.Module):  # type: ignore[misc,name-defined]
    """A layer with a weight, and a bias if asked for."""

    def __init__(self, *shape: Any, bias: bool = False, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1))
        self.in_features = shape[0] if shape else None
        if bias:
            self.bias = nn.Parameter(torch.empty(1))


class MLP(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = Weight(), Weight()


class Attention(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.head_dim = self.total_num_heads = self.total_num_kv_heads = 1
        self.qkv_proj, self.o_proj = Weight(bias=bias), Weight(bias=bias)
        self.attn = types.SimpleNamespace(sliding_window_size=None)


class DecoderLayer(nn.Module):  # type: ignore[misc,name-defined]
    """``LlamaDecoderLayer`` of ``llama.py``."""

    def __init__(self, config: Any, *_: Any, **__: Any) -> None:
        super().__init__()
        self.hidden_size = config.hidden_size
        bias = getattr(config, "attention_bias", False) or getattr(config, "bias", False)
        self.self_attn, self.mlp = Attention(bias), MLP()
        self.input_layernorm, self.post_attention_layernorm = Weight(), Weight()


class MLAAttention(nn.Module):  # type: ignore[misc,name-defined]
    """``DeepseekV2AttentionMLA`` with compressed queries."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.q_lora_rank = given["q_lora_rank"]
        self.kv_lora_rank = self.qk_rope_head_dim = 1
        for name in ("q_b_proj", "kv_b_proj", "o_proj", "q_a_layernorm", "kv_a_layernorm"):
            setattr(self, name, Weight())


STAND_INS: dict[str, Any] = {
    **dict.fromkeys(
        (
            "VocabParallelEmbedding", "ParallelLMHead", "RMSNorm", "QKVParallelLinear",
            "ColumnParallelLinear", "ReplicatedLinear",
        ),
        Weight,
    ),
    "LlamaMLP": MLP,
    "DeepseekV2MLP": MLP,
    "LlamaDecoderLayer": DecoderLayer,
    "LlamaForCausalLM": nn.Module,
    "DeepseekV2AttentionMLA": MLAAttention,
    "layer_stack": contextlib.nullcontext,
}  # fmt: skip


class StandIn(types.ModuleType):
    """Any module of SGLang."""

    def __getattr__(self, name: str) -> Any:
        return STAND_INS.get(name) or MagicMock(name=name)


def draft_class(path: Path) -> Any:
    """The draft class of a release's model file."""

    def fake_import(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "sglang":
            return StandIn(name)
        return builtins.__import__(name, *rest, **named)

    scope: dict[str, Any] = {
        "__name__": "draft",
        "__builtins__": {**vars(builtins), "__import__": fake_import},
    }
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)  # a release's own
    return scope["EntryClass"][0]


def canonical(names: list[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        name = re.sub(r"\bmidlayer\.", "layers.0.", name.removeprefix("model."))
        stacked = next((s for s in STACKS if f".{s}." in name), None)
        parts = STACKS[stacked] if stacked else ("",)
        found |= {name.replace(f".{stacked}.", f".{part}.") for part in parts}
    return found


def stops(case: Situation) -> bool:
    """Whether doctor says that the server stops or cannot load."""
    wanted = {"E3P316", "E3P318", "E3P322", "E3P415"}
    return any(isinstance(r, Finding) and r.code in wanted for r in judge(case))


@pytest.mark.skipif(not SOURCES, reason="no sources of SGLang releases in the cache")
@pytest.mark.parametrize(
    ("release", "mla", "path"),
    SOURCES,
    ids=[f"{release}-{'mla' if mla else 'llama'}" for release, mla, _ in SOURCES],
)
def test_parameters(release: str, mla: bool, path: Path) -> None:
    build = draft_class(path)
    for config in CONFIGS:
        if "q_lora_rank" in config and not mla:
            continue
        changes = {key: value for key, value in config.items() if key != "ids"}
        case = situation(
            draft={**(MLA_DRAFT if mla else {}), **FILLER, "rope_scaling": None, **changes},
            release=release,
            ids=config.get("ids"),
        )
        known = draft_module.parameters(case)
        assert known is not None
        try:
            model = build(types.SimpleNamespace(**case.draft.config))
        except (ValueError, TypeError, AttributeError):
            assert stops(case), config
            continue
        assert canonical([name for name, _ in model.named_parameters()]) == known.all, config
        width = draft_module.input_width(case)
        assert width is not None
        assert model.model.fc.in_features == width * draft_module.aux_count(case), config


def test_two_batch_overlap_of_the_installed_release() -> None:
    """E3P215's table of model files: which hand layers to a loop that captures nothing."""
    import ast
    import importlib.util

    from sglang_eagle3_probe.host.target_classes import CLASSES
    from sglang_eagle3_probe.rules.static import e3p215_two_batch_overlap as rule

    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no SGLang here")
    folder = Path(next(iter(spec.submodule_search_locations))) / "srt" / "models"
    overlapped: dict[str, bool] = {}
    for name in sorted({row.file for row in CLASSES.values()}):
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        calls = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("model_forward_stages", "model_forward_maybe_tbo")
        ]
        handed = {keyword.arg or "" for call in calls for keyword in call.keywords}
        assert not any("aux" in word or "capt" in word for word in handed), name
        if calls:
            overlapped[name] = "first_k_dense_replace" in text
    # qwen3_moe inherits qwen2_moe's loop; the wrappers hand on to the class inside.
    inherits = {"qwen3_moe", "kimi_k25", "minimax_m3_vl"}
    assert {n for n, dense in overlapped.items() if not dense} == rule.ALL_LAYERS - inherits
    assert {n for n, dense in overlapped.items() if dense} == rule.AFTER_DENSE - inherits
