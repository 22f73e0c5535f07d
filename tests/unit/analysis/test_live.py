"""Totals and the last minute, against counts made by hand, in memory that does not grow."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
import samples

from sglang_eagle3_probe.analysis.live import WINDOW_S, LiveRank, LiveRun, Window, tokens_of
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.records import Fault, Footer, Losses, Progress, Ranks

START = 1_800_000_000.0


def timed(count: int, every_s: float, start_s: float = START) -> list[VerifyRound]:
    records = samples.rounds(count)
    for number, record in enumerate(records):
        record.wall_s = start_s + number * every_s
        record.rids, record.rounds = ["a"], [number]
    return records


def head(**ranks: Any) -> Any:
    return samples.header(ranks=Ranks(**{"tp_rank": 0, "tp_size": 1, **ranks}), wall_s=START)


def outcome(record: VerifyRound) -> tuple[int, int]:
    return (record.steps, record.correct_drafts[0])


def test_the_last_minute_is_what_lies_in_it() -> None:
    run, records = LiveRun(), timed(4_000, 0.1)
    run.add("p", head())
    for record in records:
        run.add("p", record)
    now_s = records[-1].wall_s + 12.3
    # Whole seconds: the edge may take up to one second more.
    edge_s = float(int(now_s - WINDOW_S))
    assert run.outcomes() == Counter(outcome(r) for r in records)
    lately = run.outcomes(now_s - WINDOW_S)
    assert lately == Counter(outcome(r) for r in records if r.wall_s >= edge_s)
    assert 470 < lately.total() < 490
    assert run.outcomes(records[-1].wall_s + 500 - WINDOW_S) == Counter()


def test_rates_and_their_course() -> None:
    rank, records = LiveRank("p"), timed(400, 0.1)
    for record in records:
        rank.add(record)
    now_s = records[-1].wall_s + 0.1
    tokens, rounds = rank.rates(now_s)
    produced = sum(r.correct_drafts[0] + 1 for r in records)
    assert abs(rounds - 10) < 0.1  # over the 40 s that there were, not over the whole minute
    assert abs(tokens - produced / 40) < 0.2
    course = rank.tokens_by_second(now_s)
    assert len(course) == WINDOW_S
    assert sum(course) == produced
    assert course[:19] == [0] * 19
    assert LiveRank("q").rates(now_s) == (0, 0)


def test_memory_does_not_grow() -> None:
    window: Window[str] = Window(Counter(), 60)
    run = LiveRun()
    for second in range(5_000):
        window.tick(START + second)
        window.totals["x"] += 1
    assert len(window._marks) == 61
    for record in timed(30_000, 1.0):
        run.add("p", record)
        run.add("p", Fault(site="a", error="e", traceback="", count=1, disabled=False))
    [rank] = run.in_order()
    assert len(rank.rounds._marks) <= WINDOW_S + 1
    assert len(run._causes["p"]._marks) <= WINDOW_S + 1
    assert len(rank.faults) == 1


def test_records_out_of_order_count_once() -> None:
    window: Window[str] = Window(Counter())
    random_ = random.Random(3)
    for number in range(2_000):
        window.tick(START + number * 0.05 + random_.uniform(-1, 1))
        window.totals["x"] += 1
    assert window.since(START + 40) <= Counter(x=2_000)
    assert 1_150 <= window.since(START + 40)["x"] <= 1_250


def test_causes_move_and_never_go_below_zero() -> None:
    run = LiveRun()
    run.add("p", head())
    for record in timed(600, 0.1):
        run.add("p", record)
        correct = record.correct_drafts[0]
        if correct < 3:
            late = samples.refusals("a", record.rounds[0], positions=[correct], ranks=[2])
            late.wall_s = record.wall_s + 1.5
            run.add("p", late)
    lately = run.causes(START + 30)
    assert set(run.causes()) == {"ranked_2"}
    assert set(lately) <= {"ranked_2", "unknown"}
    assert 0 < lately["ranked_2"] < run.causes()["ranked_2"]


def test_tensor_parallel_ranks_count_once_and_groups_add_up() -> None:
    run, records = LiveRun(), timed(100, 0.1)
    for dp in range(2):
        for tp in range(2):
            name = f"probe-scheduler-tp{tp}-dp{dp}-pid{dp}{tp}"
            run.add(name, head(tp_rank=tp, tp_size=2, dp_rank=dp, dp_size=2))
            for record in records:
                run.add(name, record)
    assert run.outcomes().total() == 200
    assert sum(run.causes().values()) == 2 * sum(1 for r in records if r.correct_drafts[0] < 3)
    assert [r.name[-2:] for r in run.in_order()] == ["00", "01", "10", "11"]
    assert len({r.rates(START + 10) for r in run.in_order()}) == 1


def test_groups_that_share_the_ranks() -> None:
    """DP attention: ranks 0 and 1 are group 0, ranks 2 and 3 group 1."""
    run, records = LiveRun(), timed(100, 0.1)
    for tp in (3, 2, 1, 0):
        run.add(f"p{tp}", head(tp_rank=tp, tp_size=4, dp_rank=tp // 2, dp_size=2))
        for record in records:
            run.add(f"p{tp}", record)
    assert [r.name for r in run.firsts()] == ["p0", "p2"]
    assert run.outcomes().total() == 200
    assert sum(run.causes().values()) == 2 * sum(1 for r in records if r.correct_drafts[0] < 3)


def test_the_newest_of_the_rest() -> None:
    rank = LiveRank("p")
    for record in samples.clean(0):
        rank.add(record)
    rank.add(Progress(records_written=1, bytes_written=1, losses=Losses(write_errors=1)))
    assert rank.losses.write_errors == 1
    rank.add(
        Footer(records_written=1, bytes_written=1, losses=Losses(write_errors=2), reason="over")
    )
    assert rank.losses.write_errors == 2
    assert rank.footer is not None
    assert rank.layer_ids is not None
    assert tokens_of(Counter({(3, 2): 4, (3, 0): 1})) == 13
