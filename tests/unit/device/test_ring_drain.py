"""Draining a ring: what arrives, what was lost, and records caught half-way."""

import threading

import numpy as np
import pytest
import torch

from sglang_eagle3_probe.device import tap
from sglang_eagle3_probe.device.drain import Drain
from sglang_eagle3_probe.device.layout import SiteLayout, decode
from sglang_eagle3_probe.device.ring import Ring

DEPTH = 8


def make(first_tick=0, max_rows=4):
    ring = Ring([SiteLayout("a", 2, max_rows, DEPTH), SiteLayout("b", 1, 2, DEPTH)], "cpu")
    ring.buffer[0] = first_tick
    return ring, Drain(ring)


def record(ring, ticks, rows=3):
    for tick in ticks:
        assert tap.record(ring, 0, torch.full((rows, 16), float(tick)))


def take(drain):
    assert drain.start()
    snapshot = drain.poll()
    assert snapshot is not None
    return snapshot


def means(words):
    return decode(words)["mean"][:, 0, 0].tolist()


def test_nothing_recorded_gives_nothing():
    _, drain = make()
    first, words, lost = take(drain).records(0, 0)
    assert (first, words.shape, lost) == (0, (0, 4, 2, 8), 0)


def test_ticks_arrive_once_and_in_order():
    ring, drain = make()
    since = 0
    seen = []
    for start in range(0, 42, 7):
        record(ring, range(start, start + 7))
        first, words, lost = take(drain).records(0, since)
        assert (first, lost) == (since, 0)
        seen += means(words)
        since = first + len(words)
    assert seen == list(range(42))
    assert take(drain).records(0, since)[1].shape[0] == 0


def test_overwritten_ticks_are_counted():
    ring, drain = make()
    record(ring, range(20))
    first, words, lost = take(drain).records(0, 2)
    # the ring's oldest tick is never given out: a running launch may be writing there
    assert (first, lost) == (13, 11)
    assert means(words) == [13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0]


def test_a_snapshot_stays_what_it_was():
    ring, drain = make()
    record(ring, range(3))
    snapshot = take(drain)
    record(ring, range(3, 9))
    take(drain)
    assert snapshot.ticks == (3, 0)
    assert means(snapshot.records(0, 0)[1]) == [0.0, 1.0, 2.0]


def test_rows_of_earlier_and_larger_launches_are_blank():
    ring, drain = make()
    record(ring, range(DEPTH), rows=4)
    record(ring, range(DEPTH, 2 * DEPTH), rows=1)
    _, words, _ = take(drain).records(0, DEPTH + 1)
    assert (words[:, 0, :, 0] > DEPTH).all()
    assert not words[:, 1:].any()


def test_a_sampled_launch_counts_as_whole():
    ring, drain = make()
    record(ring, range(2), rows=9)
    first, words, lost = take(drain).records(0, 0)
    assert (first, len(words), lost) == (0, 2, 0)
    assert words[0, :, 0, 0].tolist() == [1, 1, 1, 0]  # rows 0, 3 and 6
    assert decode(words)["rows"][0, 0, 0] == 9


@pytest.mark.parametrize("first_tick", [-3, 2**31 - 3])
def test_the_device_tick_may_wrap_around(first_tick):
    ring, drain = make(first_tick)
    start = take(drain).ticks[0]
    record(ring, range(5))
    snapshot = take(drain)
    first, words, lost = snapshot.records(0, start)
    assert snapshot.ticks[0] == start + 5
    assert (first, lost) == (start, 0)
    assert means(words) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_tags_left_behind_half_the_counter_ago_are_ignored():
    ring, drain = make()
    record(ring, range(1), rows=4)  # row 3 keeps this tag
    ring.buffer[0] = -5
    start = take(drain).ticks[0]
    record(ring, range(3), rows=2)
    assert take(drain).records(0, start)[2] == 0


def copied(ring, drain, change):
    """A snapshot of a buffer as a copy might have found it, after ``change``."""
    buffer = ring.buffer.clone()
    change(buffer, ring)
    ring.buffer.copy_(buffer)
    return take(drain)


def row_words(ring, index, row):
    place = ring.places[0]
    start = place.records + (index * 4 + row) * 2 * 8
    return slice(start, start + 16, 8)


def test_a_tick_overwritten_during_the_copy_is_lost():
    ring, drain = make()
    record(ring, range(10))

    def newer(buffer, ring):  # tick 12 has begun: one row of tick 4 is overwritten
        buffer[row_words(ring, 12 % DEPTH, 1)] = 13

    first, words, lost = copied(ring, drain, newer).records(0, 3)
    # 12 launches have finished by then, so ticks 2, 3 and 4 are no more
    assert (first, lost) == (6, 3)
    assert means(words) == [6.0, 7.0, 8.0, 9.0]


def test_a_tick_that_the_copy_passed_too_early_comes_later():
    ring, drain = make()
    record(ring, range(10))

    def older(buffer, ring):  # the copy read two rows of tick 9 before they were written
        buffer[row_words(ring, 9 % DEPTH, 1)] = 2
        buffer[row_words(ring, 9 % DEPTH, 2)] = 2

    snapshot = copied(ring, drain, older)
    first, words, lost = snapshot.records(0, 5)
    assert (first, lost) == (5, 0)
    assert means(words) == [5.0, 6.0, 7.0, 8.0]

    def written(buffer, ring):
        buffer[row_words(ring, 9 % DEPTH, 1)] = 10
        buffer[row_words(ring, 9 % DEPTH, 2)] = 10

    first, words, lost = copied(ring, drain, written).records(0, first + len(words))
    assert (first, lost, means(words)) == (9, 0, [9.0])


def test_everything_overwritten_during_the_copy():
    ring, drain = make()
    record(ring, range(30))
    ring.buffer[0] = 10
    first, words, lost = take(drain).records(0, 4)
    assert (first, len(words), lost) == (10, 0, 6)


def test_both_buffers_busy_is_refused_and_counted():
    ring, drain = make()
    record(ring, range(1))
    assert drain.start()
    record(ring, range(1, 2))
    assert drain.start()
    assert not drain.start()
    assert drain.refused == {"busy": 1, "capturing": 0}
    ticks = []
    while (snapshot := drain.poll()) is not None:
        ticks.append(snapshot.ticks[0])
    assert ticks == [1, 2]
    assert drain.start()


def test_a_snapshot_is_plain_numpy_for_another_thread():
    ring, drain = make()
    record(ring, range(3))
    snapshot = take(drain)
    found = []
    thread = threading.Thread(target=lambda: found.append(snapshot.records(0, 0)))
    thread.start()
    thread.join()
    assert means(found[0][1]) == [0.0, 1.0, 2.0]
    assert type(snapshot.words) is np.ndarray
    assert snapshot.words.flags.owndata
    assert snapshot.sites == ring.sites


def test_a_drain_keeps_still_during_a_capture(monkeypatch):
    ring, drain = make()
    record(ring, range(1))
    assert drain.start()
    monkeypatch.setattr(drain, "_capturing", lambda: True)
    assert not drain.start()
    assert drain.poll() is None
    assert drain.refused == {"busy": 0, "capturing": 1}
    monkeypatch.undo()
    assert drain.poll().ticks[0] == 1
