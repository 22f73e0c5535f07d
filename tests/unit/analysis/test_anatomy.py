"""Causes of refusal: by hand, joined from records in any order, in bounded memory."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.trace.traffic_samples import end, refusals, served, verify

from sglang_eagle3_probe.analysis.anatomy import (
    CAUSES,
    Anatomy,
    RefusalCounts,
    anatomy,
    cause_of,
)
from sglang_eagle3_probe.analysis.intervals import wilson
from sglang_eagle3_probe.analysis.slices import depth_of
from sglang_eagle3_probe.analysis.traffic_counts import TrafficCounts
from sglang_eagle3_probe.trace.acceptance_records import Refusals, VerifyRound
from sglang_eagle3_probe.trace.record_base import Record

ALL = ("out_of_vocab", "ranked_2", "ranked_3_4", "ranked_5_8", "ranked_more", "sampling", "unknown")


def counted(*records: Record, **limits: int) -> RefusalCounts:
    counts = TrafficCounts()
    counts.refusals = RefusalCounts(**limits)
    counts.add_all(records)
    return counts.refusals


def causes(counts: RefusalCounts) -> dict[tuple[int, str], int]:
    return {key: n for key, n in counts.counts.items() if n}


@pytest.mark.parametrize(
    ("rank", "matches", "how", "cause"),
    [
        (2, False, {}, "ranked_2"),
        (3, False, {}, "ranked_3_4"),
        (4, False, {}, "ranked_3_4"),
        (5, None, {}, "ranked_5_8"),
        (8, False, {}, "ranked_5_8"),
        (9, False, {}, "ranked_more"),
        (None, False, {}, "unknown"),
        (None, None, {"out_of_vocab": True}, "out_of_vocab"),
        (7, False, {"out_of_vocab": True}, "out_of_vocab"),
        (0, False, {}, "unknown"),
        # A chain's first choice is refused by sampling alone.
        (1, True, {"greedy": False}, "sampling"),
        (1, False, {"greedy": False}, "sampling"),
        (1, False, {}, "unknown"),
        (6, True, {"greedy": False}, "sampling"),
        (6, True, {"greedy": None}, "sampling"),
        # Greedy verification cannot have been the cause.
        (6, True, {}, "ranked_5_8"),
        (4, False, {"topk": 4}, "pruned"),
        (1, False, {"topk": 4}, "pruned"),
        (5, False, {"topk": 4}, "ranked_5_8"),
        (5, False, {"topk": 8}, "pruned"),
        (None, False, {"topk": 4, "unexpanded": True}, "unexpanded"),
        (None, True, {"topk": 4, "unexpanded": True, "greedy": False}, "sampling"),
        (None, None, {"topk": 4, "unexpanded": True, "out_of_vocab": True}, "out_of_vocab"),
    ],
)
def test_cause(rank: int | None, matches: bool | None, how: dict[str, Any], cause: str) -> None:
    given_ = {"topk": 1, "greedy": True, "out_of_vocab": False, **how}
    assert cause_of(rank, matches, **given_) == cause
    assert cause in CAUSES


def test_by_hand() -> None:
    # Correct drafts 0, 1, 3 of 3 in round 0; 0, 2, 1 in round 1. Ranks told for four of five.
    first = verify([0, 1, 3], out_of_vocab=[True, False, False], greedy=[True] * 3)
    second = verify([0, 2, 1], rounds=[1] * 3, out_of_vocab=[False] * 3, greedy=[True] * 3)
    a, b, _ = first.rids
    told = refusals((a, 0, 0, None, False), (b, 0, 1, 2, False), (a, 1, 0, 3, False))
    later = refusals((b, 1, 2, 900, False))
    counts = counted(first, second, told, later)
    assert causes(counts) == {
        (0, "out_of_vocab"): 1,
        (0, "ranked_3_4"): 1,
        (1, "ranked_2"): 1,
        (1, "unknown"): 1,
        (2, "ranked_more"): 1,
    }
    assert (counts.joined, counts.unjoined, counts.contradictions) == (4, 0, 0)
    parts = anatomy(counts, Counter({(3, 0): 2, (3, 1): 2, (3, 2): 1, (3, 3): 1}))
    assert (parts.rounds, parts.refused, parts.explained) == (6, 5, 4)
    (oov, third), _, _ = parts.positions
    assert (oov.count, oov.refused, oov.reached) == (1, 2, 6)
    assert (oov.share, oov.lost) == (0.5, 1 / 6)
    assert oov.interval == wilson(1, 2)
    assert oov.lost_interval == wilson(1, 6)
    assert third.cause == "ranked_3_4"
    assert [s.reached for s in parts.positions[1]] == [4, 4]
    assert parts.positions[2][0].reached == 2
    assert parts.of("unknown").share == pytest.approx(0.2)
    assert parts.of("pruned").count == 0


def test_level_wiring_knows_the_draft_vocabulary_alone() -> None:
    counts = counted(verify([0, 1], out_of_vocab=[True, None], greedy=[True, True]))
    assert causes(counts) == {(0, "out_of_vocab"): 1, (1, "unknown"): 1}


def test_records_of_older_traces() -> None:
    counts = counted(verify([0, 3, 2]))
    assert causes(counts) == {(0, "unknown"): 1, (2, "unknown"): 1}


def test_a_branch_that_the_draft_did_not_go_on_with() -> None:
    record = verify([2, 2], topk=4, greedy=[True, True])
    told = refusals(*((rid, 0, 2, None, False) for rid in record.rids))
    told.unexpanded = [True, False]
    assert causes(counted(record, told)) == {(2, "unexpanded"): 1, (2, "unknown"): 1}


def test_rounds_that_were_passed_over_are_in_no_share() -> None:
    whole, part = served(causes=ALL, batch=3), served(causes=ALL, batch=3)
    looked: set[tuple[str, int]] = set()
    rounds = [r for r in part.records if isinstance(r, VerifyRound)]
    for number, record in enumerate(rounds):
        record.looked_at = [number % 5 == 2 and row < 2 for row in range(3)]
        keys = zip(record.rids, record.rounds, record.looked_at, strict=True)
        looked |= {(rid, n) for rid, n, was in keys if was}
    for told in [r for r in part.records if isinstance(r, Refusals)]:
        keep = [
            i for i, key in enumerate(zip(told.rids, told.rounds, strict=True)) if key in looked
        ]
        for name in ("rids", "rounds", "positions", "ranks", "target_argmax_matches"):
            setattr(told, name, [getattr(told, name)[i] for i in keep])
    # The same rounds alone, as a trace of nothing else would have them.
    alone = [r for r in part.records if not isinstance(r, VerifyRound)]
    for record in rounds:
        keep = [i for i, was in enumerate(record.looked_at) if was]
        lists = ("rids", "rounds", "context_lens", "correct_drafts", "out_of_vocab", "greedy")
        fewer = {name: [getattr(record, name)[i] for i in keep] for name in lists}
        if keep:
            alone.insert(0, msgspec.structs.replace(record, **fewer, looked_at=[]))

    def anatomy_of(records: list[Record]) -> Anatomy:
        counts = TrafficCounts()
        counts.add_all(records)
        return anatomy(counts.refusals, counts.slices.outcomes())

    found, expected = anatomy_of(part.records), anatomy_of(alone)
    assert found.not_looked_at == 12 * 60 - len(looked)
    assert dataclasses.replace(found, not_looked_at=0) == expected
    assert 0 < found.refused < anatomy_of(whole.records).refused / 5
    assert found.unjoined == 0
    twice = RefusalCounts()
    twice.merge(counted(*part.records))
    twice.merge(counted(*part.records))
    assert twice.not_looked_at.total() == 2 * found.not_looked_at


def test_refusals_may_come_before_their_round() -> None:
    record = verify([1])
    counts = counted(refusals((record.rids[0], 0, 1, 2, False)), record)
    assert causes(counts) == {(1, "ranked_2"): 1}


def test_a_request_that_ended_in_the_round() -> None:
    record = verify([1, 1], rounds=[5, 5])
    a, b = record.rids
    told = refusals((a, 5, 1, 2, False), (b, 5, 1, 2, False))
    # a lost a token after its end; b ended with the bonus token itself: a refusal like others.
    for order in ((told, end(a, 6, cut_tokens=1)), (end(a, 6, cut_tokens=1), told)):
        counts = counted(record, *order, end(b, 6, cut_tokens=0))
        assert causes(counts)[1, "ended"] == 1
        assert sum(causes(counts).values()) == 2
    assert causes(counted(record, told, end(a, 9, cut_tokens=1))) == {(1, "ranked_2"): 2}


def test_a_position_that_disagrees_is_not_joined() -> None:
    record = verify([1])
    counts = counted(record, refusals((record.rids[0], 0, 2, 2, False)))
    assert causes(counts) == {(1, "unknown"): 1}
    assert (counts.joined, counts.unjoined) == (0, 1)


def test_the_first_choice_refused_greedily_is_a_contradiction() -> None:
    record = verify([0, 0], greedy=[True, False])
    told = refusals(*((rid, 0, 0, 1, False) for rid in record.rids))
    counts = counted(record, told)
    assert counts.contradictions == 1
    assert causes(counts) == {(0, "unknown"): 1, (0, "sampling"): 1}


def test_positions_not_proposed_are_never_refused() -> None:
    # One step: a right draft leaves nothing to refuse. A budget of two drafts for three steps too.
    assert causes(counted(verify([1, 0], steps=1))) == {(0, "unknown"): 1}
    assert causes(counted(verify([2, 1], proposed_drafts=2))) == {(1, "unknown"): 1}


def test_memory_is_bounded() -> None:
    rounds = [verify([0], rounds=[n]) for n in range(50)]
    counts = RefusalCounts(open_rounds=10)
    for record in rounds:
        counts.add_rounds([record], [3])
    assert 10 <= len(counts._open) <= 20
    rid = rounds[0].rids[0]
    counts.add_refusals(refusals((rid, 0, 0, 2, False), (rid, 49, 0, 2, False)))
    assert causes(counts) == {(0, "unknown"): 49, (0, "ranked_2"): 1}
    early = RefusalCounts(early_refusals=3)
    for number in range(9):
        early.add_refusals(refusals((rid, number, 0, 2, False)))
    assert len(early._early) + early.unjoined == 9
    assert 3 <= len(early._early) <= 6


@pytest.mark.parametrize("topk", [1, 4])
@pytest.mark.parametrize("batch", [1, 3])
def test_generated_traffic_is_counted_as_it_was_made(topk: int, batch: int) -> None:
    kinds = ALL if topk == 1 else ("pruned", "ranked_5_8", "ranked_more", "out_of_vocab", "unknown")
    made = served(causes=kinds, topk=topk, batch=batch)
    assert causes(counted(*made.records)) == {k: n for k, n in made.causes.items() if n}


def test_counts_travel_between_processes_and_add_up() -> None:
    halves = [served(causes=ALL, seed=seed) for seed in (1, 2)]
    whole = RefusalCounts()
    for half in halves:
        whole.merge(pickle.loads(pickle.dumps(counted(*half.records))))
    assert causes(whole) == dict(halves[0].causes + halves[1].causes)


@given(st.integers(0, 2**32), st.sampled_from([1, 4]), st.integers(0, 12))
def test_every_refusal_has_one_cause_whatever_the_order(seed: int, topk: int, lag: int) -> None:
    source = random.Random(seed)
    made = served(requests=4, rounds=8, causes=ALL, topk=topk, lag=lag, seed=seed % 1000)
    records = made.records
    told = [r for r in records if isinstance(r, Refusals)]
    rest = [r for r in records if not isinstance(r, Refusals)]
    shuffled = source.sample(told, len(told))
    for record in shuffled:
        rest.insert(source.randrange(len(rest) + 1), record)
    counts, slices = counted(*rest, open_rounds=source.choice([1, 5, 1000])), TrafficCounts()
    slices.add_all(rest)
    outcomes = slices.slices.outcomes()
    parts = anatomy(counts, outcomes)
    assert parts.refused == sum(n for (depth, correct), n in outcomes.items() if correct < depth)
    assert all(n >= 0 for n in counts.counts.values())
    for position, shares in enumerate(parts.positions):
        refused = sum(n for (d, c), n in outcomes.items() if c == position < d)
        assert sum(share.count for share in shares) == refused
        for share in shares:
            assert share.count <= share.refused <= share.reached
            assert 0 <= share.interval.low <= share.share <= share.interval.high <= 1


def test_depth_is_what_was_proposed() -> None:
    assert depth_of(verify([0])) == 3
    assert depth_of(verify([0], proposed_drafts=1)) == 1
    assert depth_of(verify([0], proposed_drafts=31, topk=8)) == 3
