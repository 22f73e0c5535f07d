"""Pooling of windows."""

from __future__ import annotations

import random

import pytest
from unit.trace import samples

from sglang_eagle3_probe.analysis.rank_values import compare
from sglang_eagle3_probe.analysis.slot_values import (
    DIGESTS,
    RECENT,
    Shares,
    SiteValues,
    flow_order,
    pool,
)


def test_windows_are_weighted_by_rows() -> None:
    values = SiteValues("decode0_in")
    for rows, rms in ((10, 1.0), (30, 2.0)):
        window = samples.slot_window(rms, mean=rms)
        values.add(samples.slot_stats("decode0_in", rows=rows, slots=[window]))
    (slot,) = values.slots
    assert slot.rms_mean == pytest.approx(1.75)
    assert slot.mean == pytest.approx(1.75)
    assert (slot.rms_min, slot.rms_max) == (0.8, 2.6)
    assert slot.rows == values.rows == 40
    assert values.ticks == 40


def test_memory_is_bounded_and_the_newest_stays() -> None:
    count = 2000
    values = pool(samples.slot_stats("aux_verify", w) for w in range(count))["aux_verify"]
    assert values.windows == count
    assert len(values.recent) == RECENT
    assert len(values.digests) == DIGESTS
    assert max(values.digests) == 20 * count - 1
    assert values.unsure_ticks <= values.digests.keys()


def test_windows_without_rows_count_their_losses_only() -> None:
    values = SiteValues("aux_verify")
    values.add(samples.slot_stats("aux_verify", rows=0, lost_ticks=5))
    assert (values.windows, values.lost_ticks, values.ticks) == (0, 5, 0)
    assert values.tapped == "mixed"


def test_mixed_when_windows_differ() -> None:
    values = SiteValues("aux_verify")
    values.add(samples.slot_stats("aux_verify", tapped="eager", joined=False))
    assert (values.tapped, values.unjoined_windows) == ("eager", 0)
    values.add(samples.slot_stats("aux_verify", 1, joined=False))
    assert (values.tapped, values.unjoined_windows) == ("mixed", 1)
    assert values.unsure_ticks == set(range(32, 40))


def test_flow_order() -> None:
    sites = [*samples.SITES, "decode10_in", "something_new"]
    random.Random(3).shuffle(sites)
    assert sorted(sites, key=flow_order) == [
        "target_embedding",
        "aux_prefill",
        "aux_verify",
        "extend_prefill_in",
        "extend_verify_in",
        "extend_prefill_fc",
        "extend_verify_fc",
        "extend_prefill_hidden",
        "extend_verify_hidden",
        "decode0_in",
        "decode0_hidden",
        "decode1_in",
        "decode1_hidden",
        "decode10_in",
        "something_new",
    ]


def test_shares_excuse_two_forwards_of_each_window() -> None:
    seen = Shares()
    seen.add(0.9, 80, 20)  # misses 8, two forwards of 4 rows excused
    assert (seen.misses, seen.beyond, seen.inner) == (8, 0, 72)
    seen.add(0.0, 40, 1)  # one forward: nothing but edges
    assert (seen.beyond, seen.inner, seen.blank_windows) == (0, 72, 0)
    seen.add(0.0, 40, 10)
    assert (seen.beyond, seen.inner, seen.blank_windows) == (32, 104, 1)


def test_ranks_are_compared_where_ticks_overlap() -> None:
    a = pool([samples.slot_stats("aux_verify", w) for w in range(3)])
    b = pool([samples.slot_stats("aux_verify", w) for w in range(1, 4)])
    (seen,) = compare([("a", a), ("b", b)])
    assert (seen.ticks, seen.equal, seen.differing, seen.shifted) == (16, 16, (), False)
    b["aux_verify"].digests[35] = "other"
    (seen,) = compare([("a", a), ("b", b)])
    assert (seen.equal, seen.differing, seen.shifted) == (15, (35,), False)
    assert compare([("a", a)]) == []
