"""A trace of every format that was ever written stays readable, with the same verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sglang_eagle3_probe.report.verdict import build
from sglang_eagle3_probe.trace.acceptance_records import PhaseTimes, Refusals, RequestEnd
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import FORMAT_VERSION, SlotStats, StatsCoverage

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
FOLDER = re.compile(r"format-\d+")
KEPT = sorted(p for p in TRACES.iterdir() if FOLDER.fullmatch(p.name))


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


def test_level_capture_of_format_1() -> None:
    """Three prompts of 12 tokens served with the right draft on the CPU rig, then one whose greedy
    rounds bring the ring's last rows to the host; every refusal looked at, every row written."""
    trace = read(TRACES / "format-1-capture")
    [process] = trace.processes
    assert process.header is not None
    assert (process.header.format_version, process.header.level) == (1, "capture")
    assert not process.problems
    report = build(trace)
    assert (report.findings, report.unknown) == ([], [])
    assert sum(c for record in process.verify_rounds() for c in record.correct_drafts) == 116

    stats = list(process.of(SlotStats))
    assert len(stats) == 35
    assert {record.tapped for record in stats} == {"eager"}
    [prefill, _] = (record for record in stats if record.site == "aux_prefill")
    assert prefill.boundaries == [0, 3, 6]
    assert [slot.equals_embedding for slot in prefill.slots] == [1.0, 0.0, 0.0]
    assert len(prefill.full_rows or []) == 3 * prefill.rows == 108
    assert len(list(process.of(StatsCoverage))) == 1

    refused = list(process.of(Refusals))
    ranks = [rank for record in refused for rank in record.ranks]
    assert len(ranks) == sum(len(record.rids) for record in refused) == 20
    assert all(rank is not None and rank > 1 for rank in ranks)
    assert {seen for record in refused for seen in record.unexpanded} == {False}

    times = list(process.of(PhaseTimes))
    assert {record.clock for record in times} == {"host"}
    assert {phase.phase for record in times for phase in record.phases} == {
        "prefill", "verify", "draft", "draft_extend",
    }  # fmt: skip
    assert sum(phase.count for record in times for phase in record.phases) == 116

    whole = list(process.of(Capture))
    pieces = list(process.of(CapturePiece))
    assert [(r.pieces, r.rounds, r.lost) for r in whole] == [(2, 7, {}), (2, 9, {}), (2, 12, {})]
    assert all(piece.digests["aux"] for piece in pieces)
    assert {record.rid for record in whole} <= {record.rid for record in process.of(RequestEnd)}
