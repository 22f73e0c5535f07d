"""The GPU runs are chosen to cover every pair of factor values; they cannot run here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from gpu_checks.runs import COVERING, uncovered


def test_every_pair_of_values_is_in_some_run() -> None:
    assert uncovered() == []


def test_half_of_the_runs_need_one_gpu_only() -> None:
    assert sum(run.tp == 1 for run in COVERING) == len(COVERING) // 2
    assert len({run.name for run in COVERING}) == len(COVERING)
