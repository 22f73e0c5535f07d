"""Acceptance understood, as printed and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console
from unit.trace import samples
from unit.trace.samples import replace
from unit.trace.traffic_samples import clean_with, phase_times, served

from sglang_eagle3_probe.analysis.economics import Plain
from sglang_eagle3_probe.analysis.prediction import parse
from sglang_eagle3_probe.analysis.understanding import Given
from sglang_eagle3_probe.report import json_out, terminal
from sglang_eagle3_probe.report.html.page import page
from sglang_eagle3_probe.report.verdict import Report, build
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
CAUSES = ("out_of_vocab", *("ranked_2",) * 4, "ranked_more", *("sampling",) * 2, "unknown")


def everything() -> list[Record]:
    """A trace in which every section has something to say."""
    made = served(requests=24, rounds=60, causes=CAUSES)
    records = replace(
        clean_with(made.records), samples.arguments(target_path="moonshotai/Kimi-K2.5")
    )
    return [*records, phase_times(), phase_times(8, ms={"verify": 15.0, "draft": 5.0})]


def given() -> Given:
    text = b'{"accuracy": [0.77, 0.75, 0.73], "joint": [0.77, 0.6, 0.5], "positions": 900}'
    return Given(parse(text, "trainer_accuracy.json"), Plain({0: 9.0}, "spacing", "111 tokens/s"))


def report(directory: Path, records: list[Record], beside: Given | None = None) -> Report:
    samples.write(directory, records)
    return build(read(directory), beside)


def printed(made: Report, width: int) -> str:
    out = io.StringIO()
    terminal.show(made, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_everything_fits_the_terminal(tmp_path: Path, width: int) -> None:
    text = printed(report(tmp_path, everything(), given()), width)
    flat = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    assert "not in draft vocabulary" in text
    assert "lost to sampling" in text
    assert "context length, tokens" in text
    assert "predicted - measured" in text
    assert "by product" in flat
    assert "by survival" in flat
    assert "a round costs" in text
    assert "one draft forward 2.00 ms" in flat
    assert "plain 111.1 (111 tokens/s)" in flat
    assert "of at most 4 for Kimi-K2.5" in flat
    assert "https://huggingface.co/lightseekorg/" in flat.replace(" ", "")


def test_acceptance_alone_is_one_screen(tmp_path: Path) -> None:
    made = report(tmp_path, everything(), given())
    out = io.StringIO()
    console = Console(file=out, width=100)
    console.print(terminal.render_acceptance(made))
    text = out.getvalue()
    assert text.startswith(" OK ")
    assert "Why drafts are refused" in text
    assert "Wiring" not in text
    assert len(text.splitlines()) <= 56


def test_columns_of_causes_add_up(tmp_path: Path) -> None:
    made = report(tmp_path, everything())
    value = json.loads(json_out.as_text(made))
    for whole, position in zip(
        value["acceptance"]["conditional"], value["refusals"]["positions"], strict=True
    ):
        lost = sum(cause["share_of_rounds"] for cause in position["causes"])
        assert lost + whole["share"] == pytest.approx(1)
        assert position["reached"] == whole["seen"]
    shares = [cause["share_of_refusals"] for cause in value["refusals"]["total"]]
    assert sum(shares) == pytest.approx(1)


def test_how_many_rounds_were_looked_at_is_said(tmp_path: Path) -> None:
    records = everything()
    rounds = [r for r in records if isinstance(r, VerifyRound)]
    for number, record in enumerate(rounds):
        record.looked_at = [number % 5 == 2] * len(record.rids)
    made = report(tmp_path, records)
    value = json.loads(json_out.as_text(made))
    whole, parts = value["acceptance"]["rounds"], value["refusals"]
    assert parts["rounds"] + parts["rounds_not_looked_at"] == whole
    assert parts["rounds"] == pytest.approx(whole / 5, abs=5)
    said = f"{parts['rounds']} of {whole} rounds were looked at"
    assert said in " ".join(printed(made, 120).split())
    assert said in page([("run", made)])


def test_traces_without_the_new_records_read_as_before(tmp_path: Path) -> None:
    text = printed(report(tmp_path, samples.clean()), 100)
    for heading in ("Why drafts are refused", "Against training", "What it is worth"):
        assert heading not in text


REPORTS: dict[str, tuple[list[Record], Given | None]] = {
    "everything": (everything(), given()),
    "owner": (samples.owners_case(), None),
    "values": (samples.clean_with_values(), None),
    "tree": (clean_with(served(topk=4, causes=("pruned", "ranked_5_8")).records), given()),
    "spacing": (clean_with(served().records), None),
    "next to nothing": ([samples.seams()], given()),
    "undecided": (
        replace(samples.clean(), samples.layer_ids([-1, 2, 5], trained_output_ids=None)),
        None,
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_as_the_schema_says(tmp_path: Path, name: str) -> None:
    records, beside = REPORTS[name]
    value = json.loads(json_out.as_text(report(tmp_path, records, beside)))
    jsonschema.Draft202012Validator(SCHEMA).validate(value)


def without(schema: Any, key: str) -> Any:
    return {**schema, "properties": {k: v for k, v in schema["properties"].items() if k != key}}


def test_the_schema_is_valid_and_strict(tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    records, beside = REPORTS["everything"]
    value = json.loads(json_out.as_text(report(tmp_path, records, beside)))
    # Everything the report has is described: taking a description away makes the report unfit.
    for key in value:
        checker = jsonschema.Draft202012Validator(without(SCHEMA, key))
        assert not checker.is_valid(value), key
        assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(
            {k: v for k, v in value.items() if k != key}
        )
    assert value["prediction"] is not None
    assert value["references"] is not None
    assert value["economics"]["batches"][0]["best"] is not None
