"""Whether two runs differ: intervals over requests, by hand and under the null."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.trace.traffic_samples import verify

from sglang_eagle3_probe.analysis.intervals_of_differences import (
    clustered_mean,
    mean_difference,
    share_difference,
)
from sglang_eagle3_probe.analysis.run_difference import compare_runs
from sglang_eagle3_probe.trace.rounds import RoundCounts, count


def run(seed: int, requests: int = 40, rounds: int = 30, chance: float = 0.7) -> RoundCounts:
    """Requests whose own chance differs from one to the next, as real ones do."""
    source = random.Random(seed)
    records = []
    for request in range(requests):
        mine = min(0.97, max(0.03, source.gauss(chance, 0.1)))
        for number in range(rounds):
            correct = 0
            while correct < 3 and source.random() < mine:
                correct += 1
            records.append(verify([correct], rids=[f"{request}"], rounds=[number]))
    return count(records)


def test_ratio_estimate_by_hand() -> None:
    # Two requests: 4 rounds with 10 tokens, 2 rounds with 2. Mean 2; residuals 2 and -2.
    found = clustered_mean([(4, 10.0), (2, 2.0), (0, 0.0)])
    assert found is not None
    assert (found.mean, found.requests, found.rounds) == (2.0, 2, 6)
    # sqrt(2/1 * (4 + 4)) / 6
    assert found.standard_error == pytest.approx(4 / 6)
    assert clustered_mean([]) is None
    lone = clustered_mean([(3, 6.0)])
    assert lone is not None
    assert math.isnan(lone.standard_error)


def test_welch_by_hand() -> None:
    a, b = clustered_mean([(1, 1.0), (1, 3.0)] * 8), clustered_mean([(1, 2.0), (1, 4.0)] * 8)
    assert a is not None
    assert b is not None
    difference, interval = mean_difference(b, a)
    assert difference == 1.0
    # Each error sqrt(16/15 * 16) / 16 = 0.2582; together 0.3651; 30 degrees, t = 2.0423.
    assert interval is not None
    assert interval.low == pytest.approx(1 - 0.7457, abs=1e-3)
    assert interval.high == pytest.approx(1 + 0.7457, abs=1e-3)


def test_newcombe_against_published_values() -> None:
    # Newcombe 1998 (difference of proportions), method 10: 56/70 - 48/80 and 9/10 - 3/10.
    gap, interval = share_difference(56, 70, 48, 80)
    assert gap == pytest.approx(0.2)
    assert interval.low == pytest.approx(0.0524, abs=1e-4)
    assert interval.high == pytest.approx(0.3339, abs=1e-4)
    _, interval = share_difference(9, 10, 3, 10)
    assert interval.low == pytest.approx(0.1705, abs=1e-4)
    assert interval.high == pytest.approx(0.8090, abs=1e-4)


def test_a_real_difference_and_its_direction() -> None:
    found = compare_runs(run(1, chance=0.75), run(2, chance=0.55))
    assert found.answer == "shorter"
    assert found.difference is not None
    assert found.difference < -0.3
    assert found.positions[0].real
    assert compare_runs(run(2, chance=0.55), run(1, chance=0.75)).answer == "longer"


def test_a_run_against_itself() -> None:
    found = compare_runs(run(1), run(1))
    assert found.answer == "same"
    assert found.difference == 0
    assert not any(p.real for p in found.positions)
    assert not found.settings_differ


def test_false_alarms_under_the_null() -> None:
    answers = [compare_runs(run(s), run(s + 5000)).answer for s in range(300)]
    alarms = sum(answer != "same" for answer in answers)
    # 5 % of 300; rounds taken as independent would alarm several times as often.
    assert 4 <= alarms <= 28


def test_too_few_requests_cannot_tell() -> None:
    few = run(1, requests=4, rounds=500, chance=0.9)
    found = compare_runs(few, run(2, chance=0.2))
    assert found.answer == "cannot_tell"
    assert "4 request(s)" in found.why
    assert all(p.interval is None for p in found.positions)
    empty = compare_runs(RoundCounts(), run(2))
    assert empty.answer == "cannot_tell"
    assert "first run" in empty.why
    assert empty.difference is None


def test_other_steps_are_said() -> None:
    deep = count([verify([4], steps=5, rids=[f"{i}"]) for i in range(9)])
    found = compare_runs(run(1), deep)
    assert found.settings_differ
    assert [p.position for p in found.positions] == [0, 1, 2]


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_swapping_the_runs_mirrors_the_answer(one: int, two: int) -> None:
    a, b = run(one, requests=8, rounds=6), run(two, requests=8, rounds=6)
    there, back = compare_runs(a, b), compare_runs(b, a)
    assert there.difference == pytest.approx(-(back.difference or 0.0))
    mirror = {"longer": "shorter", "shorter": "longer", "same": "same"}
    assert back.answer == mirror[there.answer]
    if there.interval is not None and back.interval is not None:
        assert there.interval.low == pytest.approx(-back.interval.high)
