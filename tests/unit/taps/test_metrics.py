"""Counters that only grow, on labels that SGLang uses, from a queue that costs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
import samples

from sglang_eagle3_probe.analysis.anatomy import RefusalCounts
from sglang_eagle3_probe.host.call import Binder, Call
from sglang_eagle3_probe.host.session import Session
from sglang_eagle3_probe.settings import Settings
from sglang_eagle3_probe.taps import metrics_export
from sglang_eagle3_probe.taps.metric_table import METRICS, PREFIX
from sglang_eagle3_probe.taps.metrics import MetricsTap, counts_traffic, host_labels
from sglang_eagle3_probe.taps.metrics_export import Exporter, RecordFeed, Series
from sglang_eagle3_probe.taps.settled_causes import (
    HOLD_FOR_DEVICE_S,
    HOLD_S,
    NOT_LOOKED_AT,
    SettledCauses,
)
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestEnd, VerifyRound
from sglang_eagle3_probe.trace.records import Fault, Losses, Ranks

prometheus_client = pytest.importorskip("prometheus_client")

LABELS = {"model_name": "m", "tp_rank": "0"}


def round_(rid: str, number: int, correct: int, **changes: Any) -> VerifyRound:
    values: dict[str, Any] = {
        "steps": 3,
        "topk": 1,
        "proposed_drafts": 3,
        "rids": [rid],
        "rounds": [number],
        "context_lens": [9],
        "correct_drafts": [correct],
        "out_of_vocab": [False],
        "greedy": [True],
    }
    return VerifyRound(**{**values, **changes})


def refusal(rid: str, number: int, position: int, rank: int | None) -> Refusals:
    return samples.refusals(
        rid, number, positions=[position], ranks=[rank], target_argmax_matches=[False]
    )


# -- causes -------------------------------------------------------------------------------------


def test_a_cause_is_counted_once_and_when_it_is_settled() -> None:
    causes = SettledCauses(from_device=True)
    causes.add_round(round_("a", 0, 1), 0.0)
    causes.add_round(round_("a", 1, 3), 0.0)  # nothing refused
    causes.add_round(round_("b", 0, 2), 0.0)
    assert causes.settle(0.5) == {}
    causes.add_refusals(refusal("a", 0, 1, 2))
    # The request may have ended in this round.
    assert causes.settle(HOLD_S - 0.1) == {}
    assert causes.settle(HOLD_S) == {(1, "ranked_2"): 1}
    assert causes.settle(5.0) == {}
    causes.add_refusals(refusal("b", 0, 2, 3))
    assert causes.settle(5.0) == {(2, "ranked_3_4"): 1}
    assert causes.settle(500.0) == {}


def test_what_the_device_never_tells_is_unknown_in_the_end() -> None:
    causes = SettledCauses(from_device=True)
    causes.add_round(round_("a", 0, 0), 0.0)
    assert causes.settle(HOLD_FOR_DEVICE_S - 0.1) == {}
    assert causes.settle(HOLD_FOR_DEVICE_S) == {(0, "unknown"): 1}


def test_level_wiring_knows_the_vocabulary_and_the_end() -> None:
    causes = SettledCauses(from_device=False)
    causes.add_round(round_("a", 0, 0, out_of_vocab=[True]), 0.0)
    causes.add_round(round_("a", 1, 2, out_of_vocab=[True]), 0.0)
    causes.add_end(samples.request_end("a", verify_rounds=2, cut_tokens=1))
    causes.add_end(samples.request_end("b", verify_rounds=2, cut_tokens=0))
    assert causes.settle(HOLD_S) == {(0, "out_of_vocab"): 1, (2, "ended"): 1}


def test_a_refusal_told_before_its_round() -> None:
    causes = SettledCauses(from_device=True)
    causes.add_refusals(refusal("a", 0, 1, 3))
    causes.add_round(round_("a", 0, 1), 0.0)
    assert causes.settle(0.1) == {}
    assert causes.settle(HOLD_S) == {(1, "ranked_3_4"): 1}
    causes.add_refusals(refusal("nobody", 0, 1, 3))
    assert causes.settle(9.0) == {}


def test_rounds_that_were_passed_over_count_apart() -> None:
    causes = SettledCauses(from_device=True)
    causes.add_round(round_("a", 0, 1, looked_at=[False]), 0.0)
    causes.add_round(round_("a", 1, 3, looked_at=[False]), 0.0)
    causes.add_round(round_("a", 2, 1, looked_at=[True]), 0.0)
    causes.add_refusals(refusal("a", 2, 1, 2))
    assert causes.settle(1.0) == {(1, NOT_LOOKED_AT): 1}
    assert causes.settle(HOLD_S) == {(1, "ranked_2"): 1}


def test_memory_is_bounded_and_nothing_is_lost() -> None:
    causes = SettledCauses(from_device=True, waiting=10)
    for number in range(25):
        causes.add_round(round_("a", number, 0), 0.0)
    assert causes.settle(0.0) == {(0, "unknown"): 15}
    assert causes.settle(1e9) == {(0, "unknown"): 10}


def test_the_same_causes_as_the_report() -> None:
    records: list[Any] = []
    for number, record in enumerate(samples.rounds(600)):
        record.rids, record.rounds = ["a"], [number]
        record.out_of_vocab, record.greedy = [number % 5 == 0], [number % 3 != 0]
        records.append(record)
        if record.correct_drafts[0] < 3 and number % 4:
            records.append(refusal("a", number, record.correct_drafts[0], number % 11 or None))
    records.append(samples.request_end("a", verify_rounds=600, cut_tokens=1))
    settled, reported = SettledCauses(from_device=True), RefusalCounts()
    found: Counter[tuple[int, str]] = Counter()
    for second, record in enumerate(records):
        if isinstance(record, VerifyRound):
            settled.add_round(record, float(second))
            reported.add_rounds([record], [3])
        elif isinstance(record, Refusals):
            settled.add_refusals(record)
            reported.add_refusals(record)
        elif isinstance(record, RequestEnd):
            settled.add_end(record)
            reported.add_end(record)
        found.update(settled.settle(float(second)))
    found.update(settled.settle(1e9))
    assert found == +reported.counts
    assert len({cause for _, cause in found}) > 4


# -- the exporter -------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Settings(enabled=True, dir=str(tmp_path)))


def exported(registry: Any) -> dict[tuple[str, ...], float]:
    """(name, own label values) -> value."""
    return {
        (s.name.removeprefix(PREFIX), *(v for k, v in s.labels.items() if k not in LABELS)): s.value
        for family in registry.collect()
        for s in family.samples
        if not s.name.endswith("_created")
    }


def test_counts(session: Session) -> None:
    registry = prometheus_client.CollectorRegistry()
    feed = RecordFeed()
    exporter = Exporter(session, feed, LABELS, traffic=True)
    series = Series(LABELS, registry)
    session.feed = feed
    session.emit(round_("a", 0, 1, not_counted=["x", "y"]))
    session.emit(round_("a", 1, 3))
    session.emit(round_("b", 0, 0, steps=1, proposed_drafts=1))
    session.emit(round_("b", 1, 7))  # impossible: more right than proposed
    session.emit(samples.layer_ids([1, 2]))  # none of these counters' business
    session.emit(samples.probe_cost(100))
    exporter.export(series, 0.0)
    found = exported(registry)
    assert found["verify_rounds_total",] == 3
    assert found["verify_batches_total",] == 4
    assert found["uncounted_rows_total",] == 2
    assert [found["proposed_drafts_total", str(k)] for k in range(3)] == [3, 2, 2]
    assert [found["correct_drafts_total", str(k)] for k in range(3)] == [2, 1, 1]
    assert found["scheduler_seconds_total",] == pytest.approx(900e-6)
    assert ("refused_drafts_total", "1", "unknown") not in found
    exporter.export(series, HOLD_S)
    found = exported(registry)
    assert found["refused_drafts_total", "1", "unknown"] == 1
    assert found["refused_drafts_total", "0", "unknown"] == 1
    assert found["verify_rounds_total",] == 3  # nothing twice


def test_losses_are_brought_to_the_book(session: Session) -> None:
    registry = prometheus_client.CollectorRegistry()
    exporter = Exporter(session, RecordFeed(), LABELS, traffic=False)
    series = Series(LABELS, registry)
    exporter.export(series, 0.0)
    assert exported(registry)["disabled_taps",] == 0
    session.recorder.record_fault(
        Fault(site="aux_states", error="E", traceback="", count=3, disabled=True)
    )
    losses = session.recorder.losses()
    losses.dropped_records = {"verify_round": 5}
    losses.missed = {"refusal_round": 4}
    losses.write_errors, losses.rotated_away_records = 2, 70
    session.recorder.losses = lambda: losses  # type: ignore[method-assign]
    for second in range(3):
        exporter.export(series, float(second))
    losses.dropped_records["verify_round"] = 6
    exporter.export(series, 3.0)
    found = exported(registry)
    assert found["faults_total", "aux_states"] == 3
    assert found["dropped_records_total", "verify_round"] == 6
    assert found["missed_total", "refusal_round"] == 4
    assert found["trace_write_errors_total",] == 2
    assert found["rotated_away_records_total",] == 70
    assert found["disabled_taps",] == 1
    assert not [key for key in found if key[0].startswith("verify_rounds")]


def test_a_burst_is_bounded_and_counted(session: Session, monkeypatch: Any) -> None:
    monkeypatch.setattr(metrics_export, "LIMIT", 4)
    registry = prometheus_client.CollectorRegistry()
    feed = RecordFeed()
    for number in range(7):
        feed.put(round_("a", number, 3))
    exporter = Exporter(session, feed, LABELS, traffic=True)
    exporter.export(Series(LABELS, registry), 0.0)
    found = exported(registry)
    assert (found["verify_rounds_total",], found["uncounted_records_total",]) == (4, 3)


def test_a_failing_exporter_stops_and_lets_go(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(metrics_export, "EVERY_S", 0.01)
    failing = Session(Settings(enabled=True, dir=str(tmp_path), fail_site="metrics_export"))
    feed = RecordFeed()
    failing.feed = feed
    Exporter(failing, feed, LABELS, traffic=True).run()
    assert failing.feed is None
    losses: Losses = failing.recorder.losses()
    assert (losses.faults, losses.disabled_sites) == ({"metrics_export": 3}, ["metrics_export"])
    failing.recorder.close("test")


# -- starting it --------------------------------------------------------------------------------


def start(session: Session, **arguments: Any) -> None:
    server_args = SimpleNamespace(**arguments)
    scheduler = SimpleNamespace(metrics_collector=SimpleNamespace(labels=LABELS))
    call = Call(Binder({"server_args": 0}), print, scheduler, (server_args,), {})
    MetricsTap(session).tap.run(lambda _call: None, call)


def test_nothing_happens_without_enable_metrics(session: Session) -> None:
    start(session, enable_metrics=False)
    assert session.feed is None
    code = (
        "import sys; import sglang_eagle3_probe.attach as a\n"
        "from sglang_eagle3_probe.settings import Settings\n"
        "a.attach_scheduler(Settings(enabled=True))\n"
        "assert 'prometheus_client' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ.copy())


def test_labels_and_ranks() -> None:
    args = SimpleNamespace(served_model_name="kimi", model_path="/m")
    theirs = {"model_name": "kimi", "tp_rank": 1, "priority": "", "team": "a"}
    scheduler = SimpleNamespace(metrics_collector=SimpleNamespace(labels=theirs))
    ranks = Ranks(tp_rank=3, tp_size=8, dp_rank=1, dp_size=2, pp_rank=0)
    assert host_labels(scheduler, args, ranks) == {
        "model_name": "kimi",
        "tp_rank": "1",
        "team": "a",
    }
    assert host_labels(SimpleNamespace(), args, ranks) == {
        "model_name": "kimi",
        "tp_rank": "3",
        "pp_rank": "0",
        "dp_rank": "1",
    }


@pytest.mark.parametrize(
    ("scheduler", "arguments", "rank", "counts"),
    [
        ({"current_scheduler_metrics_enabled": True}, {}, 3, True),
        ({"current_scheduler_metrics_enabled": False}, {}, 0, False),
        ({}, {}, 0, True),
        ({}, {}, 1, False),
        ({}, {"enable_metrics_for_all_schedulers": True}, 1, True),
        ({}, {"enable_dp_attention": True}, 4, True),
        ({}, {"enable_dp_attention": True}, 5, False),
    ],
)
def test_who_counts(scheduler: Any, arguments: Any, rank: int, counts: bool) -> None:
    ranks = Ranks(tp_rank=rank, tp_size=8, dp_size=2)
    args = SimpleNamespace(**arguments)
    assert counts_traffic(SimpleNamespace(**scheduler), args, ranks) is counts
    if scheduler:  # where later releases keep it
        context = SimpleNamespace(metrics_collector_context=SimpleNamespace(**scheduler))
        assert counts_traffic(context, args, ranks) is counts


def test_names() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith(PREFIX)
        assert metric.name.endswith("_total") is (metric.kind == "counter")


def test_what_it_costs_the_scheduler(session: Session) -> None:
    """Well under the 10 us a round that would be worth a thought; the record itself costs more."""
    feed, record = RecordFeed(), round_("a", 0, 1)
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(2_000):
            feed.put(record)
        best = min(best, (time.perf_counter() - began) / 2_000)
        feed.take()
    assert best < 5e-6
