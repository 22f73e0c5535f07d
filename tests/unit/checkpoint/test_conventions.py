"""The table of conventions: readings, reach, conversion, producers."""

from __future__ import annotations

import itertools

import pytest

from sglang_eagle3_probe.host import conventions as c
from sglang_eagle3_probe.host.target_classes import BY_NAME

RELEASES = [f"0.5.{n}" for n in (6, 9, 11, 12, 13, 14, 16, 17, 18, 20, 21, 22, 23)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.5.13.post1", (0, 5, 13)),
        ("v0.5.9", (0, 5, 9)),
        ("0.5.24rc1", (0, 5, 24)),
        ("0.5.23.dev4+gabc", (0, 5, 23)),
        ("0.6", (0, 6, 0)),
    ],
)
def test_releases(text: str, number: tuple[int, int, int]) -> None:
    assert c.release(text) == number


@pytest.mark.parametrize("text", ["", "x", "main", "0", "\u0661.2.3", "1..2"])
def test_no_releases(text: str) -> None:
    with pytest.raises(ValueError, match="no SGLang release"):
        c.release(text)


@pytest.mark.parametrize(
    ("name", "sglang", "ids", "layers", "boundaries"),
    [
        ("LlamaForCausalLM", "0.5.23", None, 32, (2, 16, 29)),
        ("LlamaForCausalLM", "0.5.23", (1, 15, 28), 32, (2, 16, 29)),
        ("DeepseekV3ForCausalLM", "0.5.12.post1", (2, 30, 58), 61, (3, 31, 59)),
        ("DeepseekV3ForCausalLM", "0.5.13.post1", (2, 30, 58), 61, (2, 30, 58)),
        ("DeepseekV3ForCausalLM", "0.5.23", (1, 29, 57), 61, (2, 30, 58)),
        ("KimiK25ForConditionalGeneration", "0.5.23", (-1, 2, 30), 61, (-1, 2, 30)),
        ("Glm4MoeForCausalLM", "0.5.23", (2, 46, 89), 92, (3, 47, 90)),
        ("GptOssForCausalLM", "0.5.16", (24, 30, 36), 36, (25, 31, 37)),
        ("GptOssForCausalLM", "0.5.17", (24, 30, 36), 36, (24, 30, 36)),
        ("GptOssForCausalLM", "0.5.17", (1, 17, 33), 36, (2, 18, 34)),
        ("MiniMaxM3SparseForConditionalGeneration", "0.5.23", None, 60, (3, 31, 58)),
        ("MiniMaxM3SparseForConditionalGeneration", "0.5.23", (1, 29, 56), 60, (2, 30, 57)),
    ],
)
def test_readings(
    name: str,
    sglang: str,
    ids: tuple[int, ...] | None,
    layers: int,
    boundaries: tuple[int, ...],
) -> None:
    assert c.sglang_boundaries(name, sglang, ids, layers) == boundaries


@pytest.mark.parametrize(
    ("name", "sglang", "boundary", "expected"),
    [
        ("LlamaForCausalLM", "0.5.21", 0, "crash"),
        ("LlamaForCausalLM", "0.5.22", 0, "captured"),
        ("Qwen3ForCausalLM", "0.5.6", 0, "captured"),
        ("DeepseekV3ForCausalLM", "0.5.13", 0, "crash"),
        ("DeepseekV3ForCausalLM", "0.5.14", 0, "captured"),
        ("DeepseekV3ForCausalLM", "0.5.16", -1, "lost"),
        ("DeepseekV3ForCausalLM", "0.5.23", -1, "crash"),
        ("LlamaForCausalLM", "0.5.23", 32, "lost"),
        ("Qwen3MoeForCausalLM", "0.5.23", 32, "crash"),
        ("GptOssForCausalLM", "0.5.16", 32, "lost"),
        ("GptOssForCausalLM", "0.5.17", 32, "captured"),
        ("MiniMaxM3SparseForCausalLM", "0.5.17", 2, "lost"),
        ("MiniMaxM3SparseForCausalLM", "0.5.18", 2, "captured"),
        ("Glm5NextForConditionalGeneration", "0.5.23", 0, "unknown"),
        ("SomethingElse", "0.5.23", 2, "unknown"),
    ],
)
def test_reach(name: str, sglang: str, boundary: int, expected: str) -> None:
    assert c.reach(name, sglang, boundary, 32) == expected


def test_classes_without_a_setter_and_unknown_ones() -> None:
    sure = c.sglang_boundaries("MixtralForCausalLM", "0.5.23", None, 32)
    assert isinstance(sure, c.Unserved)
    assert sure.certain
    newer = c.sglang_boundaries("MixtralForCausalLM", "0.6.0", None, 32)
    assert isinstance(newer, c.Unserved)
    assert not newer.certain
    early = c.sglang_boundaries("Gemma3ForCausalLM", "0.5.11", None, 32)
    assert isinstance(early, c.Unserved)
    assert early.certain
    for name in (None, "NobodyForCausalLM"):
        nobody = c.sglang_boundaries(name, "0.5.23", None, 32)
        assert isinstance(nobody, c.Unserved)
        assert not nobody.certain


@pytest.mark.parametrize("sglang", RELEASES)
@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_what_to_write_is_read_back(name: str, sglang: str) -> None:
    for wanted in itertools.combinations((0, 1, 2, 3, 30, 31, 58, 61), 3):
        ids = c.ids_to_write(name, sglang, wanted, 61)
        if isinstance(ids, c.Unserved):
            started = c.release(sglang) >= BY_NAME[name].first
            assert not started or (ids.certain and wanted[0] == 1)
        else:
            assert c.sglang_boundaries(name, sglang, ids, 61) == wanted


def test_boundary_one_cannot_come_first_on_deepseek() -> None:
    ids = c.ids_to_write("DeepseekV3ForCausalLM", "0.5.23", (1, 3, 31), 61)
    assert isinstance(ids, c.Unserved)
    assert c.ids_to_write("DeepseekV3ForCausalLM", "0.5.12", (1, 3, 31), 61) == (0, 2, 30)


def test_captured_is_ascending_and_once() -> None:
    assert c.captured("Qwen3ForCausalLM", "0.5.23", (30, 2, 2, 99), 36) == (2, 30)


def test_known_faults() -> None:
    assert not c.known_faults("Gemma3ForCausalLM", "0.5.16")
    assert "residual" in c.known_faults("Gemma3ForConditionalGeneration", "0.5.23")[0].what
    assert c.known_faults("Qwen3_5MoeForConditionalGeneration", "0.5.21")[0].captures_nothing
    assert not c.known_faults("Qwen3_5MoeForConditionalGeneration", "0.5.22")
    assert c.known_faults("DeepseekV3ForCausalLM", "0.5.13")[0].needs


@pytest.mark.parametrize(
    ("config", "names", "producer", "unit"),
    [
        ({"speculators_model_type": "eagle3"}, None, "speculators", "h"),
        ({"aux_hidden_states_layer_ids": [1]}, None, "AngelSlim", "o"),
        ({}, {"model.fc.weight", "model.layers.0.x"}, "NeMo Automodel", "o"),
        ({"eagle_config": {}}, {"layers.0.x", "d2t"}, "ModelOpt", "o"),
        ({"eagle_config": {"use_mtp_layernorm": False}}, None, "ModelOpt", "o"),
        ({"model_type": "kimi_k2"}, {"layers.0.x"}, "TorchSpec or ModelOpt", "unknown"),
        ({"eagle_config": {}}, {"midlayer.x", "d2t", "t2d"}, "SpecForge or TorchSpec", "o"),
        ({}, {"midlayer.x"}, "EAGLE, SpecForge or TorchSpec", "unknown"),
        ({"architectures": 3, "eagle_config": []}, set(), "unknown", "unknown"),
    ],
)
def test_producers(
    config: dict[str, object], names: set[str] | None, producer: str, unit: str
) -> None:
    found = c.recognise_producer(config, names)
    assert (found.name, found.unit) == (producer, unit)
    assert found.why


def test_table_against_the_installed_sources() -> None:
    """Every class with a setter in the installed release has a row, under its file."""
    import ast
    from importlib import metadata
    from pathlib import Path

    try:
        distribution = metadata.distribution("sglang")
    except metadata.PackageNotFoundError:
        pytest.skip("SGLang is not installed")
    if c.release(distribution.version) != c.NEWEST_READ:
        pytest.skip(f"the table was read up to {c.NEWEST_READ}")
    models = Path(str(distribution.locate_file("sglang/srt/models")))
    for file in models.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "def set_eagle3_layers_to_capture" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(part, ast.FunctionDef) and part.name == "set_eagle3_layers_to_capture"
                for part in node.body
            ):
                inner = not node.name.endswith(("ForCausalLM", "ForConditionalGeneration"))
                assert inner or c.lookup(node.name) or node.name == "MindSporeForCausalLM"
