"""Accept length over time: filed by the clock, bounded, and the same whoever adds it up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.trace.traffic_samples import verify

from sglang_eagle3_probe.analysis.timeline import MOST_BINS, TimeCounts
from sglang_eagle3_probe.analysis.traffic_counts import TrafficCounts
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound

START_S = 1_700_000_000


def at(second: float, *correct: int) -> VerifyRound:
    return verify(list(correct), wall_s=START_S + second)


def counted(*records: VerifyRound) -> TimeCounts:
    counts = TimeCounts()
    counts.add_rounds(records, [3] * len(records))
    return counts


def test_each_second_has_its_mean_and_gaps_stay_gaps() -> None:
    first, second = counted(at(0.2, 3, 1), at(0.9, 2), at(7.5, 0, 0)).moments()
    assert (first.start_s, first.width_s, first.rounds) == (START_S, 1, 3)
    assert first.accept_length == pytest.approx(3.0)
    assert (second.start_s - START_S, second.accept_length) == (7, 1.0)
    # All rounds alike are no proof that no other would come.
    assert second.interval is not None
    assert second.interval.low == 1.0
    assert second.interval.high > 1.2


def test_impossible_rows_and_clocks_are_left_out() -> None:
    wrong = verify([1, 9, -1], wall_s=START_S)
    unequal = verify([1, 1], rids=["a"], wall_s=START_S)
    far = verify([1], wall_s=1e300)
    (only,) = counted(wrong, unequal, far).moments()
    assert (only.rounds, only.accept_length) == (1, 2.0)


def test_a_long_run_is_held_in_few_bins_without_losing_a_round() -> None:
    moments = counted(*(at(second, 2) for second in range(0, 40_000, 7))).moments()
    assert len(moments) <= MOST_BINS
    assert sum(m.rounds for m in moments) == len(range(0, 40_000, 7))
    assert {m.width_s for m in moments} == {512}


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3)), max_size=300), st.integers(1, 5)
)
def test_split_over_processes_it_is_the_same(rows: list[tuple[int, int]], parts: int) -> None:
    records = [at(second, correct) for second, correct in rows]
    merged = TimeCounts()
    for part in range(parts):
        merged.merge(counted(*records[part::parts]))
    # Parts may have widened less than the whole; then they hold the same rounds in as few bins.
    whole = counted(*records)
    assert merged.moments() == whole.moments()


def test_traffic_counts_it() -> None:
    counts = TrafficCounts()
    counts.add_all([at(0, 2, 2), at(1, 0, 0)])
    other = TrafficCounts()
    other.add_all([at(1, 2, 2)])
    counts.merge(other)
    assert [m.accept_length for m in counts.time.moments()] == [3.0, 2.0]
