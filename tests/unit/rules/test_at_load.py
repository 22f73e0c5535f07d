"""Static findings in a trace: joined with what the trace shows, each fault said once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.trace import samples
from unit.trace.samples import STATIC, replace, static_finding, static_findings, static_unknown

from sglang_eagle3_probe.rules.at_load import COVERED_BY
from sglang_eagle3_probe.rules.base import Finding, Result, Unknown
from sglang_eagle3_probe.rules.evidence import collect
from sglang_eagle3_probe.rules.judging import exit_code
from sglang_eagle3_probe.rules.registry import RULES, judge
from sglang_eagle3_probe.rules.static.registry import RULES as STATIC_RULES
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import LayerIds


def results(directory: Path, records: list[Record]) -> list[Result]:
    samples.write(directory, records)
    return judge(collect(read(directory)))


def by_code(found: list[Result]) -> dict[str, Result]:
    made = {result.code: result for result in found}
    assert len(made) == len(found), "a code twice"
    return made


def test_the_table_names_rules_that_exist() -> None:
    assert set(COVERED_BY) <= {rule.code for rule in STATIC_RULES}
    assert {code for row in COVERED_BY.values() for code in row} <= {rule.code for rule in RULES}


@pytest.mark.parametrize(("severity", "code"), [("error", 1), ("warning", 1), ("note", 0)])
def test_a_static_finding_counts_like_any_other(tmp_path: Path, severity: str, code: int) -> None:
    found = results(
        tmp_path, [*samples.clean(), static_findings(static_finding(severity=severity))]
    )
    [finding] = found
    assert isinstance(finding, Finding)
    assert (finding.code, finding.source, finding.severity) == (STATIC, "files", severity)
    assert finding.evidence[0].what == "rope_theta"
    assert exit_code(found) == code


def test_the_same_fault_is_said_once_with_the_live_words(tmp_path: Path) -> None:
    said = static_findings(static_finding("E3P124"), static_finding())
    found = by_code(results(tmp_path, [*samples.owners_case(), said]))
    assert "E3P124" not in found
    assert found["E3P101"].also == ("E3P124",)
    assert found["E3P101"].source == "trace"
    assert found[STATIC].also == ()


def test_without_the_live_finding_the_static_one_stands(tmp_path: Path) -> None:
    found = by_code(
        results(tmp_path, [*samples.clean(), static_findings(static_finding("E3P124"))])
    )
    assert set(found) == {"E3P124"}


def test_a_live_note_does_not_hide_an_error(tmp_path: Path) -> None:
    ids = samples.layer_ids([5, -1, 2], configured=[5, -1, 2], trained_output_ids=[5, -1, 2])
    records = replace(samples.clean(), ids)
    found = by_code(results(tmp_path, [*records, static_findings(static_finding("E3P114"))]))
    note = found["E3P103"]
    assert isinstance(note, Finding)
    assert note.severity == "note"
    assert note.also == ()
    assert "E3P114" in found


def test_questions_are_covered_by_questions_and_findings_are_not(tmp_path: Path) -> None:
    ids = samples.layer_ids([-1, 2, 5], trained_output_ids=None)
    records = replace(samples.clean(), ids)
    said = static_findings(static_unknown("E3P123"), static_finding("E3P124"))
    found = by_code(results(tmp_path, [*records, said]))
    question = found["E3P101"]
    assert isinstance(question, Unknown)
    assert question.also == ("E3P123",)
    assert set(found) == {"E3P101", "E3P124"}


def test_a_static_error_explains_a_low_accept_length(tmp_path: Path) -> None:
    low = [*samples.clean(0), *samples.rounds(400, (0.1, 0.1, 0.1))]
    before = by_code(results(tmp_path / "a", low))["E3P601"]
    assert "looks right" in before.message
    after = by_code(results(tmp_path / "b", [*low, static_findings(static_finding())]))["E3P601"]
    assert f"as is to be expected with {STATIC}" in after.message


def test_hosts_that_say_the_same_are_one_finding(tmp_path: Path) -> None:
    for rank in (0, 8):
        samples.write(
            tmp_path,
            [*samples.clean(), static_findings(static_finding())],
            head=samples.header(
                pid=rank + 1, ranks=samples.Ranks(tp_rank=rank, tp_size=16, dp_size=1, pp_size=1)
            ),
            name=f"probe-scheduler-tp{rank}-pid{rank + 1}",
        )
    found = [r for r in judge(collect(read(tmp_path))) if r.code == STATIC]
    assert [len(r.ranks) for r in found] == [2]


def test_worst_first_whatever_the_source(tmp_path: Path) -> None:
    said = static_findings(static_finding(severity="warning"))
    found: list[Any] = results(tmp_path, [*samples.owners_case(), said])
    severities = [r.severity for r in found if isinstance(r, Finding)]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert [r for r in samples.owners_case() if isinstance(r, LayerIds)]
