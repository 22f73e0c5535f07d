"""``compare`` as a user runs it: exit codes, text, JSON, and what it says when it cannot run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fixtures import materialise
from fixtures.prompts import held_out_sample
from trained_files import Scene

from sglang_eagle3_probe.cli.main import main

KEYS = {
    "schema", "answer", "served_boundaries", "trained_boundaries", "trained_boundaries_claimed",
    "tokens_compared", "alignments", "slots", "findings", "notes", "exit_code",
}  # fmt: skip
SLOT_KEYS = {
    "slot", "name", "side", "served_boundary", "served_boundary_by_values",
    "trained_boundary_by_values", "other", "relative_error", "cosine", "norm_ratio", "error_left",
    "error_of_next_best", "error_prompt", "error_verify_rounds", "nearest_served", "outliers",
}  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("target")
    return Scene(materialise("llama", folder), held_out_sample()[:80])


def test_alike(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture, states = scene.capture(tmp_path / "c"), scene.specforge(tmp_path / "s")
    assert main(["compare", str(capture), "--train", str(states)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("the served states are those of training, in every slot.")
    assert "SpecForge (aux_hidden_state beside hidden_state" in " ".join(text.split())
    assert "80 equal token ids from the first token on, 80 compared" in text


def test_findings(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = scene.capture(tmp_path / "c", slots=(3, 5, 7))
    states = scene.specforge(tmp_path / "s")
    given = ["compare", str(capture), "--train", str(states), "--target", str(scene.folder)]
    assert main(given) == 1
    text = capsys.readouterr().out
    assert "1. every slot is served one boundary later than trained" in text
    assert "Fix: serve the boundaries [2, 4, 6]" in text
    assert max(map(len, text.splitlines())) <= 100


def test_json(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = scene.capture(tmp_path / "c", slots=(3, 5, 7))
    states = scene.specforge(tmp_path / "s")
    assert main(["compare", str(capture), "--train", str(states), "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert set(value) == KEYS
    assert all(set(slot) == SLOT_KEYS for slot in value["slots"])
    assert value["schema"] == "sglang-eagle3-probe-compare/1"
    assert value["answer"] == "different"
    assert value["trained_boundaries"] == [2, 4, 6]
    assert [finding["name"] for finding in value["findings"]] == ["one_late"]
    assert value["slots"][0]["nearest_served"][0] == {
        "kind": "boundary",
        "index": 2,
        "relative_error": 0.0,
    }
    assert value["exit_code"] == 1


def test_what_cannot_run(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture, states = scene.capture(tmp_path / "c"), scene.specforge(tmp_path / "s")
    for given, message in (
        ([str(tmp_path / "none"), "--train", str(states)], "LEVEL=capture"),
        ([str(capture), "--train", str(tmp_path / "none.pt")], "does not exist"),
        ([str(capture), "--train", str(states), "--target", str(tmp_path / "x")], "x"),
    ):
        assert main(["compare", *given]) == 2
        told = capsys.readouterr()
        assert message in told.err
        assert told.err.count("\n") == 1
        assert told.out == ""


def test_without_torch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["compare", str(tmp_path), "--train", str(tmp_path)]) == 2
    assert "pip install 'sglang-eagle3-probe[offline]'" in capsys.readouterr().err
