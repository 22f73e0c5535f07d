"""A trace of every format that was ever written stays readable, with the same verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_eagle3_probe.report.verdict import build
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import FORMAT_VERSION

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
KEPT = sorted(TRACES.glob("format-*"))


def test_each_format_has_one() -> None:
    assert [p.name for p in KEPT] == [f"format-{n}" for n in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("folder", KEPT, ids=lambda p: p.name)
def test_it_reads_as_it_did(folder: Path) -> None:
    trace = read(folder)
    [process] = trace.processes
    assert process.header is not None
    assert f"format-{process.header.format_version}" == folder.name
    assert not process.problems
    report = build(trace)
    assert [f.code for f in report.findings] == ["E3P101", "E3P601"]
    # What the demo prints of this run: 643 rounds, 117 of them with a first draft that was right.
    drafts = [count for record in process.verify_rounds() for count in record.correct_drafts]
    assert len(drafts) == 643
    kinds = {kind.__name__ for kind in process.records}
    assert kinds >= {"Seams", "Arguments", "LayerIds", "VocabMap", "Weights", "DraftForward"}
