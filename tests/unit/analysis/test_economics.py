"""Costs and gains by hand: 10 ms verify, 4 ms draft, 2 ms extend against a plain step of 8 ms."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.trace.traffic_samples import phase_times, served, start, verify

from sglang_eagle3_probe.analysis.acceptance import Acceptance, from_outcomes
from sglang_eagle3_probe.analysis.economics import BatchEconomics, Economics, Plain, economics
from sglang_eagle3_probe.analysis.phase_costs import Costs, Spacing
from sglang_eagle3_probe.analysis.traffic_counts import TrafficCounts
from sglang_eagle3_probe.trace.acceptance_records import PhaseTimes
from sglang_eagle3_probe.trace.record_base import Record

SEEN = from_outcomes(Counter({(3, 0): 40, (3, 1): 20, (3, 2): 20, (3, 3): 20}), requests=4)
"""Conditional 0.6, 2/3, 0.5; unconditional 0.6, 0.4, 0.2; accept length 2.2."""
OWN = {1: 40, 2: 20, 3: 20, 4: 20}
"""The same by tokens of a round."""


def costs(*records: Record) -> Costs:
    counts = TrafficCounts()
    counts.add_all(records)
    return counts.costs


def worth(times: Costs, seen: Acceptance = SEEN, **how: Any) -> Economics:
    by_batch = how.pop("by_batch", {1: OWN})
    return economics(times, by_batch, seen, setting=(3, 1, 4), **how)


def main(found: Economics) -> BatchEconomics:
    assert found.main is not None
    return found.main


def test_by_hand_with_a_plain_step_in_the_trace() -> None:
    ms = {"verify": 10.0, "draft": 4.0, "draft_extend": 2.0, "decode": 8.0, "prefill": 50.0}
    found = worth(costs(phase_times(ms=ms)))
    batch = main(found)
    assert (batch.basis, batch.round_ms, batch.plain_ms) == ("phases", 16.0, 8.0)
    assert batch.break_even == 2.0
    assert batch.speed_up == pytest.approx(1.1)
    assert batch.tokens_per_s == pytest.approx(137.5)
    assert batch.draft_step_ms == 2.0  # three steps take two draft forwards
    assert [(p.name, p.steps, p.share) for p in batch.parts] == [
        ("verify", 1.25, 0.625),
        ("draft", 0.5, 0.25),
        ("draft extend", 0.25, 0.125),
    ]
    assert found.extend_ms == {1: 50.0}
    assert found.plain_source == "decode phases of this trace"
    limit, length = batch.speed_up_interval, SEEN.accept_length_interval
    assert limit is not None
    assert length is not None
    assert limit.low == pytest.approx(length.low / 2)


def test_the_owners_question() -> None:
    # 54.8 tokens/s against 90: 1.46 tokens in a round of 26.64 ms, plain steps of 11.11 ms.
    seen = from_outcomes(Counter({(3, 0): 66, (3, 1): 24, (3, 2): 8, (3, 3): 2}), requests=4)
    gap_ms = 1460 / 54.8
    made = served(requests=2, rounds=200, gap_ms=gap_ms)
    times = costs(
        *made.records, phase_times(ms={"verify": 14.0, "draft": 8.0, "draft_extend": 3.0})
    )
    found = economics(
        times,
        {1: {1: 66, 2: 24, 3: 8, 4: 2}},
        seen,
        setting=(3, 1, 4),
        plain=Plain({0: 1000 / 90}, "spacing", "90 tokens/s as given"),
        predicted_length=2.85,
    )
    batch = main(found)
    assert batch.basis == "spacing"
    assert batch.tokens_per_s == pytest.approx(54.8, rel=0.01)
    assert batch.speed_up == pytest.approx(54.8 / 90, rel=0.01)
    assert batch.break_even == pytest.approx(1.46 * 90 / 54.8, rel=0.01)
    assert batch.predicted_speed_up == pytest.approx(2.85 / 2.398, rel=0.01)
    parts = {part.name: part.ms for part in batch.parts}
    assert parts["rest"] == pytest.approx(gap_ms - 25, rel=0.15)
    assert sum(part.share for part in batch.parts) == pytest.approx(1)
    assert sum(part.steps or 0 for part in batch.parts) == pytest.approx(batch.break_even)


def test_without_a_plain_step_there_is_a_limit() -> None:
    batch = main(worth(costs(phase_times())))
    assert (batch.plain_ms, batch.break_even, batch.speed_up) == (None, None, None)
    assert batch.least_break_even == 1.6
    assert all(part.steps is None for part in batch.parts)


def test_spacing_alone() -> None:
    made = served(requests=3, rounds=50, gap_ms=12.0)
    times = costs(*made.records)
    # One gap less than rounds in each request; those with a prefill in between do not count.
    assert times.spacing[1].count == 3 * 49
    assert times.spacing[1].median_ms == pytest.approx(12.0, rel=0.011)
    batch = main(worth(times))
    assert batch.basis == "spacing"
    assert batch.parts == ()
    assert batch.least_break_even is None
    assert [o.status for o in batch.options] == ["measured"]


def test_gaps_that_hold_more_than_a_round() -> None:
    def rounds_at(*times_s: float, **changes: Any) -> list[Record]:
        return [verify([1], rounds=[n], monotonic_s=t, **changes) for n, t in enumerate(times_s)]

    assert costs(*rounds_at(1.0, 1.01, 1.02)).spacing[1].count == 2
    skipped = [verify([1], rounds=[n], monotonic_s=1.0 + n) for n in (0, 2)]
    assert costs(*skipped).spacing == {}
    other = [verify([1], rids=[r], rounds=[0], monotonic_s=1.0) for r in ("a", "b")]
    assert costs(*other).spacing == {}
    assert costs(start("a"), *rounds_at(1.0, 1.0)).spacing == {}  # a clock that stands still
    one, two = costs(*rounds_at(1.0)), costs(*rounds_at(5.0, 5.01))
    one.merge(two)
    assert one.spacing[1].count == 1  # no gap between processes


def test_too_few_gaps_are_not_a_round_time() -> None:
    assert worth(costs(*served(requests=1, rounds=10).records)).batches == ()


def test_shorter_chains_are_reckoned_and_longer_ones_marked() -> None:
    ms = {"verify": 10.0, "draft": 4.0, "draft_extend": 2.0, "decode": 8.0}
    batch = main(worth(costs(phase_times(ms=ms))))
    options = {o.steps: o for o in batch.options}
    assert [(n, o.status) for n, o in options.items()] == [
        (1, "shorter"),
        (2, "shorter"),
        (3, "measured"),
        (4, "extrapolated"),
        (5, "extrapolated"),
    ]
    assert options[1].accept_length == pytest.approx(1.6)
    assert options[1].round_ms == 12.0
    assert options[2].accept_length == pytest.approx(2.0)
    assert options[2].draft_tokens == 3
    assert options[4].accept_length == pytest.approx(2.3)  # 0.2 * 0.5 more
    assert batch.best is not None
    # 1.6 / 12, 2.0 / 14, 2.2 / 16 tokens per ms.
    assert batch.best.steps == 2
    assert batch.best_extrapolated is None


def test_a_tree_supports_no_other_setting() -> None:
    times = costs(phase_times(topk=4, draft_tokens=8))
    found = economics(times, {1: OWN}, SEEN, setting=(3, 4, 8))
    assert [o.status for o in main(found).options] == ["measured"]


def test_batch_sizes_have_their_own_costs() -> None:
    times = costs(
        phase_times(1, ms={"verify": 10.0, "decode": 9.0}),
        phase_times(8, ms={"verify": 20.0, "decode": 10.0}),
    )
    found = worth(times, by_batch={1: OWN, 8: {1: 400, 3: 400}, 3: {2: 5}, 4: {}})
    assert [(b.batch_size, b.break_even) for b in found.batches] == [(8, 2.0), (1, 10 / 9)]
    assert found.batches[0].accept_length == 2.0


def test_records_are_pooled_by_count() -> None:
    times = costs(
        phase_times(ms={"verify": 10.0}, count=300),
        phase_times(ms={"verify": 20.0}, count=100),
        phase_times(ms={"verify": 99.0}, count=0),
        phase_times(ms={"verify": 30.0}, count=1, draft_tokens=9, not_timed=4, overlapped=True),
    )
    cost = times.of("verify", 1)
    assert cost is not None
    assert (cost.count, cost.mean_ms, cost.typical_ms) == (400, 12.5, 12.5)
    assert (cost.least_ms, cost.greatest_ms) == (10.0, 20.0)
    assert (times.not_timed, times.overlapped, dict(times.clocks)) == (4, True, {"device": 4})
    assert times.of("verify", 2) is None


def test_empty_phase_times() -> None:
    empty = PhaseTimes(clock="host", steps=3, topk=1, draft_tokens=4, phases=[])
    assert worth(costs(empty)).batches == ()
    assert worth(costs(), by_batch={}).main is None


def test_plain_rates_hold_for_their_batch_size() -> None:
    assert Plain({0: 10.0}, "spacing", "").step_ms(7) == 10.0
    assert Plain({8: 10.0}, "spacing", "").step_ms(7) is None
    assert Plain({8: math.inf}, "spacing", "").step_ms(8) is None


@given(st.lists(st.floats(0.01, 10_000), min_size=1, max_size=60))
def test_median_of_spacing_is_right_within_bins(gaps: list[float]) -> None:
    spacing = Spacing()
    for gap in gaps:
        spacing.bins[math.floor(math.log(gap) * 50)] += 1
    lower = sorted(gaps)[(len(gaps) - 1) // 2]
    upper = sorted(gaps)[len(gaps) // 2]
    assert lower * 0.979 <= spacing.median_ms <= upper * 1.021


@given(
    st.floats(0.1, 50),
    st.floats(0, 50),
    st.floats(0, 50),
    st.floats(0.1, 50),
    st.integers(1, 6),
)
def test_parts_add_up_and_speed_up_is_length_over_cost(
    verify_ms: float, draft_ms: float, extend_ms: float, plain_ms: float, steps: int
) -> None:
    ms = {"verify": verify_ms, "draft": draft_ms, "draft_extend": extend_ms, "decode": plain_ms}
    seen = from_outcomes(Counter({(steps, c): 10 for c in range(steps + 1)}), requests=3)
    times = costs(phase_times(ms=ms, steps=steps, draft_tokens=steps + 1))
    lengths = dict.fromkeys(range(1, steps + 2), 10)
    found = economics(times, {1: lengths}, seen, setting=(steps, 1, steps + 1))
    batch = main(found)
    assert sum(p.ms for p in batch.parts) == pytest.approx(batch.round_ms)
    assert batch.break_even is not None
    assert batch.speed_up == pytest.approx(batch.accept_length / batch.break_even)
    measured = [o for o in batch.options if o.status == "measured"]
    assert [(o.steps, o.accept_length) for o in measured] == [(steps, batch.accept_length)]
    lengths = [o.accept_length for o in batch.options]
    assert lengths == sorted(lengths)
    assert batch.best is not None
    assert batch.best.tokens_per_s >= batch.tokens_per_s - 1e-9
