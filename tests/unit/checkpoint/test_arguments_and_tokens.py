"""Server flags as typed, and token files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_eagle3_probe.checkpoint.arguments import parse_arguments
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.tokens import count_tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("--tp 4 --pp-size=2", {"tp_size": 4, "pp_size": 2}),
        ("sglang serve --model-path 7 --x", {"model_path": "7", "x": True}),
        ("python -m sglang.launch_server --x -1", {"x": -1}),
        ("--mem-fraction-static 0.8 --a 1e-3", {"mem_fraction_static": 0.8, "a": 1e-3}),
        ("--b .5 --c . --d 5.", {"b": 0.5, "c": ".", "d": 5.0}),
        ("--ids 1 2 3", {"ids": [1, 2, 3]}),
        ("--x 1 --x 2", {"x": 2}),
        ("--speculative-algo EAGLE3", {"speculative_algorithm": "EAGLE3"}),
        ("--tensor-parallel-size 2", {"tp_size": 2}),
        ("--json-model-override-args '{\"a\": 1}'", {"json_model_override_args": '{"a": 1}'}),
        ("--big 99999999999999999999", {"big": "99999999999999999999"}),
        ("--v nan", {"v": "nan"}),
    ],
)  # fmt: skip
def test_flags(text: str, expected: dict[str, Any]) -> None:
    assert parse_arguments(text) == expected


@pytest.mark.parametrize("text", ["--x 'open", "x" * 100_001])
def test_flags_that_cannot_be_read(text: str) -> None:
    with pytest.raises(CheckpointError):
        parse_arguments(text)


@pytest.mark.parametrize(
    "text",
    ["1 2 2", "1,2\n2", "[1, 2, 2]", "[[1], [2, 2]]", '{"input_ids": [1, 2, 2]}', "[1]\n[2, 2]",
     '{"token_ids": [1]}\n\n{"tokens": [2, 2]}'],
)  # fmt: skip
def test_token_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    assert count_tokens(str(file), str(tmp_path)) == {1: 1, 2: 2}


@pytest.mark.parametrize("text", ["", "words", "[1, -2]", '{"a": 1}', "[]", "[1.5]"])
def test_files_without_tokens(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(CheckpointError):
        count_tokens(str(file), str(tmp_path))


def test_text_through_the_targets_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    vocabulary = {"a": 0, "b": 1, "?": 2}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    parts = {"type": "Whitespace"}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": parts, "post_processor": None, "decoder": None,
        "model": model,
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    (tmp_path / "text").write_text("a b a")
    assert count_tokens(str(tmp_path / "text"), str(tmp_path)) == {0: 2, 1: 1}
    (tmp_path / "config.json").write_text("{}")
    beside = str(tmp_path / "config.json")
    assert count_tokens(str(tmp_path / "text"), beside) == {0: 2, 1: 1}, "also by the config alone"
    snapshot = tmp_path / "hub" / "models--some--target" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text(json.dumps(whole))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    assert count_tokens(str(tmp_path / "text"), "some/target") == {0: 2, 1: 1}
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be used"):
        count_tokens(str(tmp_path / "text"), str(tmp_path))
