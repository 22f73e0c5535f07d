"""``infer-layers`` as a user meets it: text, JSON, exit codes, refusals in words."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.capture.writing import write_piece
from sglang_eagle3_probe.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

from offline_bench.infer_layers import make

KEYS = {
    "format", "answer", "exit_code", "decided", "best", "possible", "served", "slots",
    "contenders", "evidence", "search", "sglang",
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target, draft and capture, the draft right with boundaries (0, 3, 5), which were served."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("pair")
    make(place, (0, 3, 5), boundaries=8, tokens=240, hidden=64, vocabulary=300)
    return place


def words(pair: Path, *more: str, draft: str = "draft") -> list[str]:
    files = [str(pair / "captures"), "--draft", str(pair / draft), "--target", str(pair / "target")]
    return ["infer-layers", *files, *more]


def test_text_says_the_answer_first_and_the_edit_last(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(pair)) == 0
    told = capsys.readouterr().out
    assert told.startswith("decided: trained on boundaries [0, 3, 5] (output ids [-1, 2, 4])")
    assert "served:  boundaries [0, 3, 5], the same" in told
    assert '"eagle_aux_hidden_state_layer_ids": [-1, 2, 4]' in " ".join(told.split())
    assert main(words(pair, "--sglang-version", "0.5.20")) == 0
    assert "with --enable-probe" in capsys.readouterr().out


def test_json_has_stable_keys_and_what_the_text_says(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(pair, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == KEYS
    assert (found["answer"], found["decided"]) == ("as_served", True)
    assert found["best"]["boundaries"] == [0, 3, 5]
    assert found["best"]["output_ids"] == [-1, 2, 4]
    assert [slot["certain"] for slot in found["slots"]] == [True] * 3
    assert found["slots"][1]["runner_up"] in (2, 4)
    assert found["slots"][1]["margin"]["low"] > 0
    assert found["sglang"]["ids"] == [-1, 2, 4]
    assert found["evidence"]["cluster_kind"].startswith("blocks")
    assert found["search"]["whole"] == 8 * 7 * 6


def test_another_order_is_a_finding_and_an_untrained_head_is_undecided(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("permuted", "untrained"):
        folder = pair / name
        folder.mkdir()
        (folder / "config.json").write_bytes((pair / "draft" / "config.json").read_bytes())
        weights = load_file(pair / "draft" / "model.safetensors")
        if name == "permuted":
            weights["fc.weight"] = weights["fc.weight"].roll(64, dims=1)
        else:
            torch.manual_seed(5)
            weights["lm_head.weight"] = torch.randn_like(weights["lm_head.weight"])
        save_file(weights, folder / "model.safetensors")
    assert main(words(pair, draft="permuted")) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("decided: trained on boundaries [5, 0, 3]")
    assert "served: boundaries [0, 3, 5]: " in told
    assert "with --enable-probe" in told
    assert main(words(pair, draft="untrained")) == 2
    told = capsys.readouterr().out
    assert told.startswith("undecided: this draft predicts its target no better than a guess")
    assert "eagle_config" not in told


def test_what_cannot_be_run_is_said_in_one_line(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = PieceInfo(
        kind="prefill", request="r", piece=0, boundaries=[1], hidden_width=4, dtype="float32"
    )
    tensors = {"token_ids": torch.arange(3), "positions": torch.arange(3), "aux": torch.ones(3, 4)}
    write_piece(tmp_path / "capture-x.safetensors", info, tensors)
    draft = ["--draft", str(pair / "draft")]
    for given, message in [
        (["infer-layers", str(tmp_path), *draft], "--probe-all-layers"),
        (["infer-layers", str(tmp_path / "none"), *draft], "has no capture files"),
        (words(pair)[:4], "whose folder was not given"),
        (words(pair, "--rows", "0"), "--rows 0"),
        (words(pair, "--sglang-version", "new"), "no SGLang release"),
    ]:
        assert main(given) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert "Fix:" in said.err or "expected" in said.err
        assert said.out == ""
