"""What the printed and the JSON report say, and that they fit the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from unit.trace import samples
from unit.trace.samples import STATIC, replace, static_finding, static_findings, static_unknown

from sglang_eagle3_probe.report import comparison, json_out, terminal
from sglang_eagle3_probe.report.html.page import page
from sglang_eagle3_probe.report.verdict import Report, build, sentence
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Losses


def report(directory: Path, records: list[Record]) -> Report:
    samples.write(directory, records)
    return build(read(directory))


def printed(made: Report, width: int) -> str:
    out = io.StringIO()
    terminal.show(made, Console(file=out, width=width))
    return out.getvalue()


def test_patched_source_is_not_called_stock(tmp_path: Path) -> None:
    ids = samples.layer_ids(
        [-1, 2, 5],
        stock_boundaries=[0, 3, 6],
        stock_error="",
        source_patched=True,
        patches_applied=[],
    )
    text = printed(report(tmp_path, replace(samples.clean(), ids)), 120)
    assert "source-patched SGLang  would capture boundaries [0, 3, 6] (the same)" in text
    assert "stock SGLang" not in text
    assert "patched by probe" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_owners_case_reads_at_a_glance(tmp_path: Path, width: int) -> None:
    text = printed(report(tmp_path, samples.owners_case()), width)
    flat = " ".join(text.split())
    assert text.startswith(" WRONG  The draft was trained on [-1, 2, 5] (embedding first)")
    assert "served without it" in flat
    assert "SGLANG_EAGLE3_PROBE_LAYER_IDS=-1,2,5" in text
    assert text.index("E3P101") < text.index("boundary h") < text.index("Acceptance")
    assert "output id o" in text
    assert text.count("DIFFERS") == 3
    assert "stock SGLang  would capture boundaries [3, 6, 9]" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text  # nothing was cut off


def test_clean_report(tmp_path: Path) -> None:
    text = printed(report(tmp_path, samples.clean()), 100)
    assert text.startswith(" OK  Nothing wrong was found")
    assert "Findings" not in text
    assert "would fail" in text
    assert "speculative_num_draft_tokens  8      4" in text
    assert "1 patched, 1 not in this release" in text


def test_what_was_not_looked_at_is_in_every_report(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean(), losses=Losses(missed={"refusal_round": 12}))
    made = build(read(tmp_path))
    text = " ".join(printed(made, 120).split())
    assert "12 not looked at (refusal_round 12)" in text
    assert "E3P901" in text
    assert "12 not looked at (refusal_round 12)" in page([("run", made)])
    (rank,) = json.loads(json_out.as_text(made))["ranks"]
    assert rank["losses"]["missed"] == {"refusal_round": 12}


def test_undecided_report(tmp_path: Path) -> None:
    ids = samples.layer_ids([-1, 2, 5], trained_output_ids=None)
    made = report(tmp_path, replace(samples.clean(), ids))
    assert made.level == "undecided"
    assert made.exit_code == 0
    text = printed(made, 80)
    assert text.startswith(" UNDECIDED ")
    assert "To decide: " in text
    assert "trained o  " not in text


def test_report_of_next_to_nothing(tmp_path: Path) -> None:
    made = report(tmp_path, [samples.seams()])
    text = printed(made, 80)
    assert made.level == "doubtful"
    assert "No layer ids were recorded" in text
    assert "No verify round was recorded" in text


def test_report_without_a_model_process(tmp_path: Path) -> None:
    samples.write(tmp_path, [samples.seams()], head=samples.header(role="main"))
    assert "no process that runs the model" in printed(build(read(tmp_path)), 80)


def test_static_findings_are_told_apart_and_counted(tmp_path: Path) -> None:
    said = static_findings(static_finding("E3P124"), static_finding(), static_unknown("E3P327"))
    made = report(tmp_path, [*samples.owners_case(), said])
    text = " ".join(printed(made, 100).split())
    assert "(also, from the files: E3P124)" in text
    assert f"{STATIC} error {STATIC} saw something in the files (from the files)" in text
    assert "E3P327 unknown E3P327 asks (from the files)" in text
    assert "files judged scheduler tp0 2 faults by 62 rules, 1 not decided" in text
    value = json.loads(json_out.as_text(made))
    listed = {f["code"]: f for f in value["findings"]}
    assert listed["E3P101"]["also"] == ["E3P124"]
    assert (listed["E3P101"]["source"], listed[STATIC]["source"]) == ("trace", "files")
    assert "E3P124" not in listed
    assert value["ranks"][0]["static_findings"]["findings"][0]["code"] == "E3P124"


def test_a_trace_that_is_right_but_for_its_files(tmp_path: Path) -> None:
    made = report(tmp_path, [*samples.clean(), static_findings(static_finding())])
    assert (made.level, made.exit_code) == ("wrong", 1)
    assert sentence(made).startswith(f"{STATIC} saw something in the files; accept length")


def test_files_that_nobody_could_read_are_said(tmp_path: Path) -> None:
    said = static_findings(rules=0, notes=["x/y does not exist."])
    made = report(tmp_path, [*samples.clean(), said])
    assert made.exit_code == 0
    assert "NOT judged: x/y does not exist." in printed(made, 100)


def test_square_brackets_are_not_markup(tmp_path: Path) -> None:
    ids = samples.layer_ids([-1, 2, 5], unit_why="[bold]not markup[/bold] [/]")
    assert "[bold]not markup[/bold] [/]" in printed(
        report(tmp_path, replace(samples.clean(), ids)), 120
    )


def test_plain_terminal_gets_plain_bars(tmp_path: Path) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    terminal.show(report(tmp_path, samples.owners_case()), Console(file=out, width=80))
    out.flush()
    assert b"#######....." in raw.getvalue()


def test_json_is_stable_and_complete(tmp_path: Path) -> None:
    made = report(tmp_path, samples.owners_case())
    text = json_out.as_text(made)
    assert text == json_out.as_text(build(read(tmp_path)))
    value = json.loads(text)
    assert value["schema"] == "sglang-eagle3-probe-report/1"
    assert value["verdict"] == "wrong"
    assert value["exit_code"] == 1
    assert value["sentence"] == sentence(made)
    assert value["findings"][0]["code"] == "E3P101"
    assert value["findings"][0]["evidence"][0] == {
        "what": "trained output ids",
        "value": [-1, 2, 5],
        "where": "trainer_accuracy.json",
    }
    seen = value["acceptance"]
    assert seen["accept_length_interval"][0] < seen["accept_length"] < 2
    assert [r["position"] for r in seen["unconditional"]] == [0, 1, 2]
    (rank,) = value["ranks"]
    assert rank["layer_ids"]["slots"][0]["output_id"] == 2
    assert rank["files"] == ["probe-scheduler-tp0-pid4242-part0.jsonl"]


def compared(directory: Path, width: int) -> str:
    reports = [
        ("stock", report(directory / "stock", samples.owners_case())),
        ("probe", report(directory / "probe", samples.clean())),
    ]
    out = io.StringIO()
    comparison.show(reports, Console(file=out, width=width))
    return out.getvalue()


def test_side_by_side_at_120_and_stacked_at_80(tmp_path: Path) -> None:
    wide = compared(tmp_path, 120)
    first = wide.splitlines()[0]
    assert "== stock ==" in first
    assert "== probe ==" in first
    assert any("WRONG" in line and "OK" in line for line in wide.splitlines())
    assert max(map(len, wide.splitlines())) <= 120
    narrow = compared(tmp_path / "again", 80)
    assert "== probe ==" not in narrow.splitlines()[0]
    assert narrow.index("== stock ==") < narrow.index("== probe ==")
    for text in (wide, narrow):
        assert "\u2026" not in text
        assert "accept length 1." in text
        assert "accept length 2." in text


def test_side_by_side_takes_traces(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean())
    out = io.StringIO()
    traces = [("a", read(tmp_path)), ("b", read(tmp_path)), ("c", read(tmp_path))]
    comparison.side_by_side(traces, Console(file=out, width=200))
    assert "== c ==" in out.getvalue().splitlines()[0]


def test_own_cost_is_told(tmp_path: Path) -> None:
    made = report(tmp_path, [*samples.clean(), samples.probe_cost()])
    flat = " ".join(printed(made, 100).split())
    assert "8 us per verify round on the scheduler's thread (0.06 % of a round" in flat
    assert "own threads 0.42 % of a core" in flat
    [rank] = json_out.as_dict(made)["ranks"]
    assert rank["cost"]["round_us"] == pytest.approx(7.5)


def test_sentence_tells_the_accept_length_once(tmp_path: Path) -> None:
    records = [r for r in samples.clean() if not isinstance(r, VerifyRound)]
    made = report(tmp_path, [*records, *samples.rounds(400, (0.0, 0.0, 0.0))])
    assert [f.code for f in made.findings] == ["E3P601"]
    assert sentence(made).lower().count("accept length") == 1
