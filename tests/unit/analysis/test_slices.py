"""Acceptance by context, cache, round, batch, uptime: filed right, and nothing lost."""

from __future__ import annotations

import pickle
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from unit.trace.traffic_samples import end, served, start, verify

from sglang_eagle3_probe.analysis.acceptance import from_outcomes
from sglang_eagle3_probe.analysis.slices import (
    Slice,
    SliceCounts,
    Slices,
    by_dimension,
    by_name,
    surely_less,
)
from sglang_eagle3_probe.analysis.traffic_counts import TrafficCounts
from sglang_eagle3_probe.trace.record_base import Record


def slices(*records: Record, started_s: float | None = None) -> dict[str, Slices]:
    counts = TrafficCounts()
    counts.add_all(records, started_s=started_s)
    return {found.name: found for found in by_dimension(counts.slices)}


def rounds(found: Slices) -> dict[str, int]:
    return {piece.label: piece.acceptance.rounds for piece in found.slices}


def test_context_length() -> None:
    found = slices(verify([0, 1, 2, 3, 3], context_lens=[0, 255, 256, 1023, 1024]))
    assert rounds(found["context_length"]) == {
        "under 256": 2,
        "256 to 511": 1,
        "512 to 1023": 1,
        "1024 to 2047": 1,
    }
    first = found["context_length"].slices[0].acceptance
    assert first.accept_length == 1.5
    assert [(r.hits, r.seen) for r in first.conditional] == [(1, 2), (0, 1), (0, 0)]


def test_cached_share_and_prefill_come_from_the_request() -> None:
    made = [
        start("a", cached_tokens=0),
        start("b", cached_tokens=25),
        start("c", cached_tokens=26, chunked_prefill=True),
        start("d", cached_tokens=75, chunked_prefill=None),
        start("e", cached_tokens=100),
        start("f", cached_tokens=None),
        verify([1] * 6, rids=list("abcdef")),
    ]
    found = slices(*made)
    assert rounds(found["cached_share"]) == {
        "nothing": 1,
        "up to 25 %": 1,
        "to 50 %": 1,
        "to 75 %": 1,
        "over 75 %": 1,
    }
    assert rounds(found["prefill"]) == {"whole": 4, "in pieces": 1}


def test_an_ended_request_is_forgotten() -> None:
    counts = TrafficCounts()
    counts.add_all([start("a"), verify([1], rids=["a"]), end("a", 1)])
    counts.add_all([verify([1], rids=["a"])])
    found = {s.name: s for s in by_dimension(counts.slices)}
    assert rounds(found["cached_share"]) == {"nothing": 1}


def test_requests_without_an_end_do_not_fill_the_memory() -> None:
    counts = SliceCounts(requests=10)
    for n in range(100):
        counts.add_start(start(f"{n}"))
    assert len(counts._requests) <= 20
    assert counts._requests.get("99", -1) >= 0
    assert counts._requests.get("9", -1) == -1


def test_rounds_batch_and_uptime() -> None:
    late = verify([1, 1, 1], rounds=[0, 3, 64], monotonic_s=1000.0 + 60 * 5, not_counted=["x"] * 2)
    found = slices(verify([1], monotonic_s=1001.0), late, started_s=1000.0)
    assert rounds(found["round"]) == {"0": 2, "2 to 3": 1, "64 and later": 1}
    # Rows of ended requests were computed too, so they are part of the batch.
    assert rounds(found["batch_size"]) == {"1": 1, "5 to 8": 3}
    assert rounds(found["uptime"]) == {"under 1 min": 1, "4 to 7 min": 3}


def test_what_was_verified_wins_over_what_was_asked() -> None:
    sampling = start("a", greedy=False, temperature=0.7)
    assert rounds(slices(sampling, verify([1], rids=["a"]))["verification"]) == {"sampling": 1}
    asked = slices(sampling, verify([1], rids=["a"], greedy=[True]))
    assert rounds(asked["verification"]) == {"greedy": 1}


def test_older_traces_lack_what_they_lack() -> None:
    found = slices(verify([1, 2], context_lens=[], rounds=[]))
    assert set(found) == {"batch_size", "uptime"}


def test_impossible_entries_are_left_out() -> None:
    counts = TrafficCounts()
    counts.add_all([verify([4, -1, 2]), verify([1], rids=["a", "b"])])
    assert counts.slices.impossible == 4
    assert counts.slices.outcomes() == Counter({(3, 2): 1})


def test_budgets_make_positions_unseen() -> None:
    counts = TrafficCounts()
    counts.add_all([verify([2, 0], proposed_drafts=2), verify([3])])
    assert counts.slices.outcomes() == Counter({(2, 2): 1, (2, 0): 1, (3, 3): 1})
    seen = from_outcomes(counts.slices.outcomes(), requests=3)
    assert [(r.hits, r.seen) for r in seen.unconditional] == [(2, 3), (2, 3), (1, 1)]


def test_exact_batch_sizes() -> None:
    counts = TrafficCounts()
    counts.add_all([verify([3, 1]), verify([0, 0]), verify([2])])
    assert counts.slices.by_batch == {2: {4: 1, 2: 1, 1: 2}, 1: {3: 1}}


def test_ranks_are_slices_too() -> None:
    found = by_name("dp_rank", "rank", {"dp0": {(3, 3): 4}, "dp1": {(3, 0): 2}, "dp2": {}})
    assert rounds(found) == {"dp0": 4, "dp1": 2}


def piece(outcomes: dict[tuple[int, int], int]) -> Slice:
    return Slice("", from_outcomes(outcomes, requests=0))


def test_surely_less_by_correct_drafts() -> None:
    many, few = {(3, 3): 500, (3, 2): 500}, {(3, 1): 500, (3, 0): 500}
    assert surely_less(piece(few), piece(many), 0.7)
    assert not surely_less(piece(many), piece(few), 0.7)
    assert not surely_less(piece(few), piece(many), 0.1)
    assert not surely_less(piece({(3, 1): 50, (3, 0): 50}), piece(many), 0.7)  # too few rounds


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_every_dimension_holds_every_round(seed: int, batch: int) -> None:
    made = served(requests=6, rounds=9, batch=batch, seed=seed)
    counts = TrafficCounts()
    counts.add_all(made.records)
    whole = counts.slices.outcomes()
    found = by_dimension(counts.slices)
    assert {s.name for s in found} >= {"context_length", "round", "batch_size", "verification"}
    for dimension in found:
        assert sum(rounds(dimension).values()) == sum(whole.values())
        tokens = sum(s.acceptance.correct_drafts for s in dimension.slices)
        assert tokens == sum(correct * n for (_, correct), n in whole.items())
    assert sum(n.total() for n in counts.slices.by_batch.values()) == sum(whole.values())


def test_counts_travel_between_processes_and_add_up() -> None:
    made = [served(seed=seed, batch=2).records for seed in (1, 2)]
    whole, together = TrafficCounts(), TrafficCounts()
    for records in made:
        own = TrafficCounts()
        own.add_all(records)
        whole.merge(pickle.loads(pickle.dumps(own)))
    together.add_all(made[0])
    together.add_all(made[1])
    assert whole.slices.outcomes() == together.slices.outcomes()
    assert whole.slices.by_batch == together.slices.by_batch
    assert whole.requests_ended == together.requests_ended == 24
