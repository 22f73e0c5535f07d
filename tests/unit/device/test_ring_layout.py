"""The record's words, the places in the ring, and row sampling."""

import numpy as np
import pytest

from sglang_eagle3_probe.device.layout import (
    RECORD_DTYPE,
    SiteLayout,
    decode,
    row_step,
    sampled_rows,
)
from sglang_eagle3_probe.device.ring import Ring, places


def test_decode_names_the_words():
    words = np.zeros((2, 3, 8), dtype=np.int32)
    floats = np.array([1.5, 2.5, -0.0], dtype=np.float32).view(np.int32)
    words[1, 2] = [-1, 7, *floats, 4, -2, 5]
    fields = decode(words)
    assert fields.shape == (2, 3)
    assert fields[1, 2].tolist() == (0xFFFFFFFF, 7, 1.5, 2.5, 0.0, 4, 0xFFFFFFFE, 5)
    assert fields[0, 0].tolist() == (0, 0, 0.0, 0.0, 0.0, 0, 0, 0)
    assert RECORD_DTYPE.itemsize == 32


def test_decode_takes_views_that_are_not_contiguous():
    words = np.arange(64, dtype=np.int32).reshape(4, 2, 8)
    assert decode(words[::2, 1])["rows"].tolist() == [9, 41]


def test_decode_refuses_other_shapes():
    with pytest.raises(ValueError, match="shape"):
        decode(np.zeros((2, 7), dtype=np.int32))


def test_places_do_not_overlap_and_keep_records_aligned():
    sites = [SiteLayout(name, 3, 5, 4) for name in "abcde"]
    found, words = places(sites)
    assert [place.tick for place in found] == [0, 2, 4, 6, 8]
    assert [place.done for place in found] == [1, 3, 5, 7, 9]
    ends = [place.records + place.layout.words for place in found]
    assert found[0].records == 16
    assert [place.records for place in found[1:]] == ends[:-1]
    assert ends[-1] == words
    assert all(place.records % 8 == 0 for place in found)


def test_ring_finds_sites_by_name():
    ring = Ring([SiteLayout("target", 3, 5, 4), SiteLayout("draft", 1, 2, 8)], "cpu")
    assert ring.site_index("draft") == 1
    assert ring.records(1).shape == (8, 2, 1, 8)
    assert ring.nbytes == 4 * (8 + 4 * 5 * 3 * 8 + 8 * 2 * 8)
    with pytest.raises(KeyError):
        ring.site_index("other")


@pytest.mark.parametrize("depth", [0, 1, 3, 12])
def test_depth_is_a_power_of_two(depth):
    with pytest.raises(ValueError, match="power of two"):
        SiteLayout("a", 1, 1, depth)


def test_ring_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="repeat"):
        places([SiteLayout("a", 1, 1, 2), SiteLayout("a", 1, 1, 2)])
    with pytest.raises(ValueError, match="at least one"):
        places([])
    with pytest.raises(ValueError, match="too large"):
        places([SiteLayout("a", 4, 2**14, 2**13)])


@pytest.mark.parametrize(
    ("rows", "most", "step", "sampled"),
    [(1, 4, 1, 1), (4, 4, 1, 4), (5, 4, 2, 3), (8, 4, 2, 4), (9, 4, 3, 3), (8192, 64, 128, 64)],
)
def test_row_sampling(rows, most, step, sampled):
    assert row_step(rows, most) == step
    assert sampled_rows(rows, most) == sampled == len(range(0, rows, step)) <= most
