"""The trainer's notes beside the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_eagle3_probe.checkpoint.reader import read_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    return tmp_path


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ('{"trained_on_output_ids": [-1, 2, 5]}', (-1, 2, 5)),
        ('{"trained_on_output_ids": []}', None),
        ('{"trained_on_output_ids": "all"}', None),
        ("{}", None),
    ],
)
def test_what_the_notes_say(folder: Path, content: str, ids: tuple[int, ...] | None) -> None:
    (folder / "trainer_accuracy.json").write_text(content)
    assert read_checkpoint(str(folder)).trained_output_ids == ids


@pytest.mark.parametrize(
    ("content", "theta"),
    [
        ('{"trained_rope_theta": 10000.0}', 10000.0),
        ('{"trained_rope_theta": 500000}', 500000.0),
        ('{"trained_rope_theta": true}', None),
        ('{"trained_rope_theta": -1}', None),
        ('{"trained_rope_theta": "1e4"}', None),
        ("{}", None),
    ],
)
def test_the_theta_of_training(folder: Path, content: str, theta: float | None) -> None:
    (folder / "trainer_accuracy.json").write_text(content)
    assert read_checkpoint(str(folder)).trained_rope_theta == theta


def test_broken_notes_are_passed_over_and_said(folder: Path) -> None:
    (folder / "trainer_accuracy.json").write_text("{not json")
    facts = read_checkpoint(str(folder))
    assert facts.trained_output_ids is None
    assert any("trainer_accuracy.json was passed over" in note for note in facts.notes)


def test_no_notes(folder: Path) -> None:
    assert read_checkpoint(str(folder)).trained_output_ids is None
