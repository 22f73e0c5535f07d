"""``export``: what comes back from Parquet is what the trace holds and the report says."""

from __future__ import annotations

import builtins
import json
import tracemalloc
from pathlib import Path
from typing import Any, get_args

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from unit.trace import samples

from sglang_eagle3_probe.cli.main import main
from sglang_eagle3_probe.report import arrow_types, parquet_out
from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTime,
    PhaseTimes,
    Refusals,
    VerifyRound,
)
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import AnyRecord, Header, Losses, Ranks


def two_groups(place: Path, rounds: int = 200) -> Path:
    """Two data-parallel groups of two tensor-parallel ranks."""
    for dp in range(2):
        for tp in range(2):
            head = samples.header(ranks=Ranks(tp_rank=tp, tp_size=2, dp_rank=dp, dp_size=2))
            samples.write(
                place,
                [*samples.clean(0), *samples.rounds(rounds, seed=dp)],
                head=head,
                name=f"probe-scheduler-tp{tp}-dp{dp}-pid{10 * dp + tp}",
            )
    return place


def rows(place: Path, table: str) -> list[dict[str, Any]]:
    return ds.dataset(place / table, partitioning="hive").to_table().to_pylist()  # type: ignore[no-any-return]


def test_a_query_gives_the_numbers_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    duckdb = pytest.importorskip("duckdb")
    trace, out = two_groups(tmp_path / "logs"), tmp_path / "out"
    main(["report", str(trace), "--json"])
    seen = json.loads(capsys.readouterr().out)["acceptance"]
    assert main(["export", str(trace), "--parquet", str(out)]) == 0
    (found,) = (
        duckdb.connect()
        .execute(
            f"""
        SELECT count(*), count(DISTINCT rid), avg(correct_drafts + 1),
               sum(correct_drafts) / sum(least(steps, proposed_drafts)),
               count(*) FILTER (correct_drafts > 1)
        FROM read_parquet('{out}/verify_round/**/*.parquet', hive_partitioning=true)
        JOIN read_parquet('{out}/processes/**/*.parquet', hive_partitioning=true) USING (process)
        WHERE newest_run AND tp_rank = 0
        """
        )
        .fetchall()
    )
    rounds, requests, accept_length, accept_rate, second = found
    assert (rounds, requests) == (seen["rounds"], seen["requests"]) == (400, 8)
    assert accept_length == pytest.approx(seen["accept_length"])
    assert accept_rate == pytest.approx(seen["accept_rate"])
    assert second == seen["unconditional"][1]["hits"]


def test_rounds_have_one_row_per_request(tmp_path: Path) -> None:
    record = VerifyRound(
        steps=3,
        topk=2,
        proposed_drafts=7,
        rids=["a", "b"],
        rounds=[4, 0],
        context_lens=[40, 9],
        correct_drafts=[2, 0],
        not_counted=["c"],
        out_of_vocab=[True, None],
        greedy=[True, False],
    )
    samples.write(tmp_path / "logs", [record])
    parquet_out.export(read(tmp_path / "logs"), tmp_path / "out")
    first, second = rows(tmp_path / "out", "verify_round")
    assert first == {
        "seq": 0,
        "monotonic_s": 1000.0,
        "wall_s": 1_700_000_000.0,
        "rid": "a",
        "round": 4,
        "context_len": 40,
        "correct_drafts": 2,
        "steps": 3,
        "topk": 2,
        "proposed_drafts": 7,
        "out_of_vocab": True,
        "greedy": True,
        "looked_at": True,
        "batch_size": 2,
        "batch_not_counted": 1,
        "rank": "tp0",
        "process": "probe-scheduler-tp0-pid4242",
    }
    assert (second["rid"], second["out_of_vocab"], second["greedy"]) == ("b", None, False)


def test_nested_fields_keep_their_shape(tmp_path: Path) -> None:
    times = PhaseTime(
        phase="verify",
        batch_size=4,
        count=9,
        mean_ms=1.5,
        least_ms=1.0,
        median_ms=1.4,
        greatest_ms=3.0,
    )
    why = Refusals(
        rids=["a", "b"],
        rounds=[1, 2],
        positions=[0, 2],
        ranks=[None, 5],
        target_argmax_matches=[None, True],
    )
    records: list[Record] = [
        samples.arguments(),
        samples.weights(),
        samples.layer_ids([-1, 2, 5]),
        samples.slot_stats("aux_verify"),
        PhaseTimes(clock="device", steps=3, topk=1, draft_tokens=4, phases=[times]),
        why,
    ]
    samples.write(tmp_path / "logs", records)
    parquet_out.export(read(tmp_path / "logs"), tmp_path / "out")
    (arguments,) = rows(tmp_path / "out", "arguments")
    assert json.loads(arguments["in_force"])["speculative_num_steps"] == 3
    assert arguments["target_num_layers"] == 10
    (weights,) = rows(tmp_path / "out", "weights")
    assert dict(weights["digests"])["fc"]["digest"] == "77aa"
    (ids,) = rows(tmp_path / "out", "layer_ids")
    assert [slot["boundary"] for slot in ids["slots"]] == [0, 3, 6]
    (window,) = rows(tmp_path / "out", "slot_stats")
    assert [slot["rms_mean"] for slot in window["slots"]] == list(samples.AUX_RMS)
    (phases,) = rows(tmp_path / "out", "phase_times")
    assert phases["phases"][0]["median_ms"] == 1.4
    refusals = rows(tmp_path / "out", "refusals")
    assert [(r["rid"], r["position"], r["rank_in_draft"]) for r in refusals] == [
        ("a", 0, None),
        ("b", 2, 5),
    ]
    (header,) = rows(tmp_path / "out", "header")
    assert header["ranks"]["tp_size"] == 1


@pytest.mark.parametrize("kind", get_args(AnyRecord), ids=lambda kind: kind.__name__)
def test_every_record_type_has_a_schema(kind: type[Record]) -> None:
    table = arrow_types.table(kind, [])
    assert table.schema.names == list(kind.__struct_fields__)


def test_losses_and_damage_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = samples.write(
        tmp_path / "logs", samples.clean(9), losses=Losses(dropped_records={"verify_round": 5})
    )
    lines = path.read_bytes().splitlines(keepends=True)
    lines[12] = lines[12][:30] + b"\n"
    path.write_bytes(b"".join(lines) + b'{"type":"veri')
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "logs"), "--parquet", str(out)]) == 0
    assert "2 problems" in capsys.readouterr().out
    problems = {(p["kind"], p["count"]) for p in rows(out, "problems")}
    assert problems == {("torn_line", 1), ("torn_last_line", 1)}
    (process,) = rows(out, "processes")
    assert dict(process["losses"]["dropped_records"]) == {"verify_round": 5}
    assert process["request_rounds"] == len(rows(out, "verify_round")) == 8
    assert process["sequence_numbers_missing"] == 1
    assert process["ended_in_order"]


def test_a_sound_trace_has_an_empty_table_of_problems(tmp_path: Path) -> None:
    samples.write(tmp_path / "logs", samples.clean(2))
    parquet_out.export(read(tmp_path / "logs"), tmp_path / "out")
    assert rows(tmp_path / "out", "problems") == []
    names = pq.read_schema(next((tmp_path / "out" / "problems").rglob("*.parquet"))).names
    assert names == ["kind", "file", "count", "detail"]


def test_runs_are_told_apart_and_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    for run in range(2):
        head = samples.header(wall_s=1e9 + run)
        samples.write(
            tmp_path / "logs", samples.clean(3), head=head, name=f"probe-scheduler-tp0-pid{run}"
        )
    newer: Header = samples.header(format_version=99)
    samples.write(tmp_path / "logs", samples.clean(3), head=newer, name="probe-scheduler-tp0-pid9")
    parquet_out.export(read(tmp_path / "logs"), tmp_path / "out")
    newest = {p["process"]: p["newest_run"] for p in rows(tmp_path / "out", "processes")}
    assert newest["probe-scheduler-tp0-pid0"] is False
    assert newest["probe-scheduler-tp0-pid1"] is True
    assert {r["process"] for r in rows(tmp_path / "out", "verify_round")} == set(newest) - {
        "probe-scheduler-tp0-pid9"
    }
    assert [p["kind"] for p in rows(tmp_path / "out", "problems")] == ["newer_format"]


def test_force_replaces_an_export_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples.write(tmp_path / "logs", samples.clean(2))
    arguments = ["export", str(tmp_path / "logs"), "--parquet", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    samples.write(tmp_path / "logs", samples.clean(5))
    assert main([*arguments, "--force"]) == 0
    assert len(rows(tmp_path / "out", "verify_round")) == 5
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    assert main([*arguments[:3], str(mine), "--force"]) == 2
    assert "left alone" in capsys.readouterr().err
    assert (mine / "thesis.txt").read_text() == "years"


def test_a_failure_leaves_neither_half_an_export_nor_takes_the_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples.write(tmp_path / "logs", samples.clean(2))
    arguments = ["export", str(tmp_path / "logs"), "--parquet", str(tmp_path / "out")]
    assert main(arguments) == 0

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_out, "_write_facts", refuse)
    assert main([*arguments, "--force"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert len(rows(tmp_path / "out", "verify_round")) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "out"]


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples.write(tmp_path / "logs", samples.clean(2))
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "sglang_eagle3_probe.report" and "parquet_out" in (rest[2] or ()):
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    code = main(["export", str(tmp_path / "logs"), "--parquet", str(tmp_path / "out")])
    assert code == 2
    assert "sglang-eagle3-probe[parquet]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_memory_does_not_grow_with_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_out, "GROUP_ROWS", 2000)
    samples.write(tmp_path / "logs", samples.clean(20_000))
    trace = read(tmp_path / "logs")
    tracemalloc.start()
    parquet_out.export(trace, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    written = pq.ParquetFile(next((tmp_path / "out" / "verify_round").rglob("*.parquet")))
    assert written.metadata.num_rows == 20_000
    assert written.metadata.num_row_groups in range(7, 11)  # blocks are not cut
    assert peak < 8 << 20  # all records at once take 19 MiB
