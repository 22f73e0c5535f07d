"""What the doctor says of a case is what real SGLang does with it: the installed release, and every
other one that is unpacked on this machine (``scripts/check_doctor`` brings them)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "checkpoint"))

from natural_targets import target_config  # noqa: E402

from contract.served.ask import Questions  # noqa: E402
from contract.served.asking import search_path  # noqa: E402
from contract.served.releases import ASKED  # noqa: E402

PUBLIC = ROOT.parent / "shared" / "data" / "draft_configs.jsonl"
LEAST = {
    "unread weights": 24,
    "unfilled parameters": 24,
    "boundaries": 100,
    "captured by a forward": 90,
    "arguments": 42,
    "overrides": 9,
}
"""So many statements of each kind at least: the comparison must not shrink unseen."""


def public_configs() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    if not PUBLIC.is_file():
        return []
    rows = [json.loads(line) for line in PUBLIC.read_text(encoding="utf-8").splitlines()]
    return [(row["name"], row["config"], target_config(row["name"])) for row in rows]


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return Questions(tmp_path_factory.mktemp("served"), public_configs())


@pytest.mark.parametrize("release", ASKED)
def test_statements(release: str, questions: Questions) -> None:
    folder = search_path(release, "scripts/check_doctor")
    rows, _ = questions.put_to(release, folder)
    counted = Counter(row.about for row in rows)
    assert all(counted[about] >= least for about, least in LEAST.items()), counted
    assert [row for row in rows if not row.agree] == []


def test_public_configs_are_among_the_cases(questions: Questions) -> None:
    if not PUBLIC.is_file():
        pytest.skip("the collected public configs are not here (../shared/data)")
    names = {name for name, _ in questions.weights}
    assert len(names & {name for name, _, _ in public_configs()}) >= 40
