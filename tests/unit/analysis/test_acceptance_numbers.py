"""Acceptance against numbers worked out by hand, and properties that hold for any rounds."""

from __future__ import annotations

import math
import random

import pytest

from sglang_eagle3_probe.analysis.acceptance import accept, from_outcomes, per_request
from sglang_eagle3_probe.analysis.intervals import mean_interval, student, wilson
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.rounds import RoundCounts, count


def verify(correct: list[int], steps: int = 3, rids: list[str] | None = None) -> VerifyRound:
    names = rids or [f"{i:012x}" for i in range(len(correct))]
    return VerifyRound(
        steps=steps,
        topk=1,
        proposed_drafts=steps,
        rids=names,
        rounds=[0] * len(correct),
        context_lens=[10] * len(correct),
        correct_drafts=correct,
    )


def test_by_hand() -> None:
    # Ten rounds: correct drafts 0 0 0 1 1 2 3 3 3 3.
    seen = accept(count([verify([0, 0, 0, 1, 1]), verify([2, 3, 3, 3, 3])]))
    assert seen.rounds == 10
    assert seen.requests == 5
    assert seen.correct_drafts == 16
    assert seen.accept_length == pytest.approx(2.6)
    assert seen.accept_rate == pytest.approx(16 / 30)
    assert seen.histogram == (3, 2, 1, 4)
    assert [(r.hits, r.seen) for r in seen.unconditional] == [(7, 10), (5, 10), (4, 10)]
    assert [(r.hits, r.seen) for r in seen.conditional] == [(7, 10), (5, 7), (4, 5)]
    # Mean 2.6, sample deviation 1.3499; t(9) = 2.2622: half-width 0.9657.
    assert seen.accept_length_interval is not None
    assert seen.accept_length_interval.low == pytest.approx(2.6 - 0.9657, abs=1e-3)
    assert seen.accept_length_interval.high == pytest.approx(2.6 + 0.9657, abs=1e-3)


def test_positions_not_proposed_are_unseen() -> None:
    # Two rounds of one step, three of three steps.
    seen = accept(count([verify([1, 0], steps=1), verify([3, 1, 0], steps=3)]))
    assert seen.steps == {1: 2, 3: 3}
    assert [(r.hits, r.seen) for r in seen.unconditional] == [(3, 5), (1, 3), (1, 3)]
    assert [(r.hits, r.seen) for r in seen.conditional] == [(3, 5), (1, 2), (1, 1)]
    assert seen.proposed_positions == 11


def test_no_rounds() -> None:
    seen = accept(RoundCounts())
    assert seen.accept_length is None
    assert seen.accept_rate is None
    assert seen.histogram == ()
    assert seen.unconditional == ()


def test_per_request_adds_up() -> None:
    counts = count([verify([0, 3], rids=["a", "b"]), verify([1, 3], rids=["a", "b"])])
    mine = per_request(counts)
    assert mine["a"].accept_length == pytest.approx(1.5)
    assert mine["b"].accept_length == pytest.approx(4.0)
    assert sum(r.rounds for r in mine.values()) == counts.total


@pytest.mark.parametrize(
    ("hits", "seen", "low", "high"),
    # Newcombe 1998, table I, score method without continuity correction.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_against_published_values(hits: int, seen: int, low: float, high: float) -> None:
    interval = wilson(hits, seen)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@pytest.mark.parametrize(
    ("degrees", "value"), [(3, 3.1824), (7, 2.3646), (10, 2.2281), (30, 2.0423), (1000, 1.9623)]
)
def test_student_against_tables(degrees: int, value: float) -> None:
    assert student(degrees) == pytest.approx(value, rel=0.015 if degrees < 7 else 0.001)


def test_equal_values_do_not_give_a_sure_mean() -> None:
    mean, interval = mean_interval({1: 5}, 1, 4)
    assert mean == 1
    assert interval is not None
    assert interval.low == 1
    assert 2.0 < interval.high < 3.0
    _, many = mean_interval({1: 5000}, 1, 4)
    assert many is not None
    assert many.high < 1.01
    assert mean_interval({2: 1}, 1, 4) == (2, None)
    assert math.isnan(mean_interval({}, 1, 4)[0])


def test_properties_of_random_rounds() -> None:
    source = random.Random(11)
    for _ in range(200):
        records = []
        for _ in range(source.randint(1, 30)):
            steps = source.randint(1, 5)
            correct = [source.randint(0, steps) for _ in range(source.randint(1, 4))]
            records.append(verify(correct, steps))
        counts = count(records)
        seen = accept(counts)
        assert seen.accept_length is not None
        interval = seen.accept_length_interval
        if interval is not None:
            assert 1 <= interval.low <= seen.accept_length <= interval.high
        assert sum(seen.histogram) == seen.rounds == sum(seen.steps.values())
        assert sum(r.hits for r in seen.unconditional) == seen.correct_drafts
        assert seen.accept_length == pytest.approx(1 + seen.correct_drafts / seen.rounds)
        for whole, given in zip(seen.unconditional, seen.conditional, strict=True):
            assert whole.hits == given.hits
            assert given.seen <= whole.seen
            assert 0 <= whole.interval.low <= whole.interval.high <= 1
        # With equal steps the conditional rates multiply to the unconditional ones.
        if len(seen.steps) == 1:
            product = 1.0
            for whole, given in zip(seen.unconditional, seen.conditional, strict=True):
                product *= given.share or 0.0
                assert whole.share == pytest.approx(product)
        # Folding in two halves is folding at once.
        half = len(records) // 2
        first, second = count(records[:half]), count(records[half:])
        first.merge(second)
        assert from_outcomes(first.outcomes, requests=len(first.by_request)) == seen
