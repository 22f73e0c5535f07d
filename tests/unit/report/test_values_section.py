"""The section on values, in text, next to each other, and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from unit.trace import samples

from sglang_eagle3_probe.report import comparison, json_out, terminal
from sglang_eagle3_probe.report.facts import number
from sglang_eagle3_probe.report.sparkline import levels
from sglang_eagle3_probe.report.verdict import Report, build
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Ranks, SeamState, SlotStats


def report(directory: Path, records: list[Record], ranks: int = 1) -> Report:
    for rank in range(ranks):
        head = samples.header(ranks=Ranks(tp_rank=rank, tp_size=ranks), pid=rank, level="stats")
        samples.write(directory, records, head=head, name=f"probe-scheduler-tp{rank}-pid{rank}")
    return build(read(directory))


def printed(made: Report, width: int) -> str:
    out = io.StringIO()
    terminal.show(made, Console(file=out, width=width))
    return out.getvalue()


def hostile() -> list[Record]:
    """Values as wide as they get."""
    records = samples.clean_with_values()
    for record in records:
        if isinstance(record, SlotStats) and record.site == "extend_prefill_in":
            for slot in record.slots:
                slot.rms_mean, slot.rms_min, slot.rms_max = 98765.4, 0.00123456, 3.4e38
                slot.absmax, slot.nonfinite = 3.4e38, 123_456
    return records


@pytest.mark.parametrize("width", [80, 120])
def test_values_fit(tmp_path: Path, width: int) -> None:
    for name, records in (("a", samples.clean_with_values()), ("b", hostile())):
        text = printed(report(tmp_path / name, records, ranks=2), width)
        assert max(map(len, text.splitlines())) <= width
        assert "\u2026" not in text
        assert "Values (level stats; scheduler tp0; 1 more in --json)" in text
        assert text.index("Wiring") < text.index("Values (") < text.index("Arguments")


def test_what_the_section_says(tmp_path: Path) -> None:
    text = printed(report(tmp_path, samples.clean_with_values(), ranks=2), 120)
    flat = " ".join(text.split())
    assert "slot 0 proven: equals the embedding of the input ids in 1920 rows" in flat
    assert "0.42 (0.336 to 0.546)" in flat
    assert "\u2584" * 12 in text  # the same in every window: a flat line
    assert "in graph replays rows/forwards 960/240 target_embedding, aux_verify" in flat
    assert "in eager forwards rows/forwards 960/240 aux_prefill" in flat
    assert "extend_prefill_in all 960 rows; extend_verify_in all 960 rows" in flat
    assert "scheduler tp0, scheduler tp1: all 1248 forwards compared at 13 sites are equal" in flat


def test_embedding_that_misses_rows_is_not_proven(tmp_path: Path) -> None:
    records = samples.clean_with_values()
    for record in records:
        if isinstance(record, SlotStats) and record.site == "aux_verify":
            record.slots[0].equals_embedding = 0.95
    made = report(tmp_path, records)
    assert made.exit_code == 0
    assert "proven" not in printed(made, 120)


def test_no_section_without_values(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean())
    assert "Values (" not in printed(build(read(tmp_path)), 80)


def test_absent_seams_do_not_read_like_a_fault(tmp_path: Path) -> None:
    seams = [SeamState(name=f"p{i}", target="a.b", state="patched") for i in range(12)]
    seams += [SeamState(name=f"a{i}", target="a.b", state="absent") for i in range(6)]
    records = samples.replace(samples.clean(), samples.seams(seams=seams))
    samples.write(tmp_path / "good", records)
    text = printed(build(read(tmp_path / "good")), 80)
    assert "12 patched, 6 not in this release" in text
    assert "of 18" not in text
    assert "a3" not in text
    seams[0] = SeamState(name="p0", target="a.b", state="failed", why="gone")
    seams[1] = SeamState(name="p1", target="a.b", state="not_imported")
    records = samples.replace(samples.clean(), samples.seams(seams=seams))
    samples.write(tmp_path / "bad", records)
    flat = " ".join(printed(build(read(tmp_path / "bad")), 80).split())
    assert "1 FAILED, 10 patched, 1 not imported yet, 6 not in this release" in flat
    assert "FAILED p0 (gone)" in flat
    assert "not imported p1" in flat


def test_side_by_side_has_a_line_per_slot(tmp_path: Path) -> None:
    reports = [
        ("with", report(tmp_path / "with", hostile())),
        ("without", report(tmp_path / "without", samples.clean())),
    ]
    out = io.StringIO()
    comparison.show(reports, Console(file=out, width=120))
    lines = [line for line in out.getvalue().splitlines() if " RMS " in line]
    assert [line.split()[:4] for line in lines] == [
        ["slot", str(slot), "h", str(h)] for slot, h in enumerate((0, 3, 6))
    ]
    assert "proven" in lines[0]
    assert max(map(len, out.getvalue().splitlines())) <= 120


def test_ascii(tmp_path: Path) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    terminal.show(report(tmp_path, hostile()), Console(file=out, width=80))
    out.flush()
    assert b"!!!!!!!!!!" in raw.getvalue()
    assert b"-----" in raw.getvalue()


def test_json(tmp_path: Path) -> None:
    made = report(tmp_path, samples.clean_with_values(), ranks=2)
    text = json_out.as_text(made)
    assert text == json_out.as_text(build(read(tmp_path)))
    value = json.loads(text)
    sites = {s["site"]: s for s in value["ranks"][0]["values"]}
    assert sites.keys() == set(samples.SITES)
    aux = sites["aux_verify"]
    assert (aux["tapped"], aux["windows"], aux["rows"], aux["ticks"]) == ("replay", 12, 960, 240)
    assert [s["boundary"] for s in aux["slots"]] == [0, 3, 6]
    assert aux["slots"][0]["equals_embedding"] == {"hits": 960, "rows": 960}
    assert len(aux["recent"]) == 12
    assert sites["extend_verify_in"]["found_in_target"] == {"hits": 960, "rows": 960}
    assert value["ranks"][0]["stats_coverage"]["ring_bytes"] == 3_000_000
    compared = value["rank_comparisons"][0]
    assert (compared["ticks"], compared["equal"], compared["comparable"]) == (96, 96, True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0318, "0.0318"),
        (1.0, "1"),
        (12.345, "12.3"),
        (99.97, "100"),
        (1234.5, "1234"),
        (99_999.4, "99999"),
        (151_234.0, "1.5e5"),
        (0.00012345, "1.2e-4"),
        (3.4e38, "3.4e38"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
    assert len(text) <= 7


def test_sparkline_levels() -> None:
    assert levels([], 8) == []
    assert levels([(0.0, False)] * 3, 8) == [3, 3, 3]
    assert levels([(1.0, False), (1.01, False)], 8) == [3, 4]  # noise looks like noise
    assert levels([(float(i), False) for i in range(16)], 8) == list(range(8))
    assert levels([(1.0, False), (1.0, True), (3.0, False)], 8) == [0, None, 7]
    assert len(levels([(1.0, False)] * 200, 10)) == 10
