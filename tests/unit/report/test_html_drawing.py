"""Scales, ticks and shapes of the HTML report's drawings."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_probe.report.html.scale import (
    Scale,
    around,
    duration,
    round_step,
    time_ticks,
)
from sglang_eagle3_probe.report.html.svg import Drawing, fitted, legend, legend_height

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.lists(NUMBERS, max_size=20))
def test_whatever_was_measured_has_an_axis(values: list[float]) -> None:
    scale = around(values, 100, 0)
    assert scale.low < scale.high
    ticks = scale.ticks()
    assert len(ticks) <= 50
    for value in [*ticks, *(v for v in values if not math.isnan(v))]:
        assert 0 <= scale(value) <= 100
    inside = [v for v in values if math.isfinite(v)]
    assert all(scale.low <= v <= scale.high for v in inside)


def test_noise_looks_like_noise_and_decades_get_a_logarithm() -> None:
    quiet = around([1.0, 1.01], 0, 100)
    assert quiet(1.01) - quiet(1.0) < 10
    wide = around([0.03, 0.4, 12.0], 0, 100)
    assert wide.logarithmic
    assert wide.ticks() == [0.1, 1.0, 10.0]
    assert not around([0.0, 12.0], 0, 100).logarithmic


def test_ticks_are_round() -> None:
    assert Scale(1.3, 2.6, 0, 100).ticks(3) == pytest.approx([1.5, 2.0, 2.5])
    assert [round_step(x) for x in (0.013, 1, 3, 7, 0, math.nan)] == [0.02, 1, 5, 10, 1, 1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0"),
        (0.5, "0.5 s"),
        (40, "40 s"),
        (60, "1 min"),
        (124, "2 min 4 s"),
        (5400, "1 h 30 min"),
        (7200, "2 h"),
        (3599.8, "60 min"),
        (200_000, "2 d 8 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@given(st.floats(0, 1e9))
def test_time_has_few_ticks(span_s: float) -> None:
    ticks = time_ticks(span_s)
    assert ticks[0] == 0
    assert len(ticks) <= 6
    assert ticks[-1] <= span_s


def test_shapes_escape_and_stay_finite() -> None:
    d = Drawing(100, 50)
    d.text(1, 2, "<b>&\"'", 'x" onload="y')
    d.circle(math.nan, math.inf, 3, "s0")
    assert "<b>" not in d.markup
    assert 'x&#34; onload=&#34;y"' in d.markup
    assert re.search(r'cx="0" cy="0"', d.markup)


def test_legends_wrap() -> None:
    entries = [("box", "s0", f"a name of some length {n}") for n in range(4)]
    assert legend_height(entries, 2000) == 17
    narrow = Drawing(200, 100)
    assert legend(narrow, entries, 0, 10, 200) == 10 + 4 * 17
    assert narrow.markup.count("<text") == 4


def test_texts_are_cut_to_their_place() -> None:
    assert fitted("short", 200) == "short"
    cut = fitted("a very long name of a class", 60)
    assert cut.endswith("\u2026")
    assert len(cut) < 12
