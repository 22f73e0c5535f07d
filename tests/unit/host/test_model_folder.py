"""Which folder of the local cache a revision means; the network is never asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.host.model_folder import local_model

COMMITS = {"main": "a" * 40, "v2": "b" * 40}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entry = tmp_path / "models--org--draft"
    (entry / "refs").mkdir(parents=True)
    for name, commit in COMMITS.items():
        (entry / "refs" / name).write_text(commit + "\n")
        folder = entry / "snapshots" / commit
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(f'{{"model_type": "{name}"}}')
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def model_type(given: str, revision: str | None) -> str | None:
    return read_checkpoint(local_model(given, revision)).model_type


def test_revisions_of_a_hub_id(cache: Path) -> None:
    assert model_type("org/draft", None) == "main"
    assert model_type("org/draft", "main") == "main"
    assert model_type("org/draft", "v2") == "v2"
    assert model_type("org/draft", "b" * 40) == "v2"


def test_a_revision_that_is_not_here_is_not_another_one(cache: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        model_type("org/draft", "v3")


@pytest.mark.parametrize("revision", ["../../..", "..", "/etc", "a/b"])
def test_a_revision_cannot_lead_out_of_the_cache(cache: Path, revision: str) -> None:
    assert ".." not in local_model("org/draft", revision)
    assert local_model("org/draft", revision).startswith((str(cache), "org/draft"))


def test_a_folder_has_no_revision(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models--org--draft"
    assert local_model(str(folder), "v2") == str(folder)
    assert local_model("no-organisation", "v2") == "no-organisation"
