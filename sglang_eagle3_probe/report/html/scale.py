"""Axes: from values to places, with ticks at round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sglang_eagle3_probe.report.facts import number


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] onto [start, end] in pixels, evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Place of a value; values outside are put at the edge."""
        value = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int = 4) -> list[float]:
        """Round numbers within."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            every = max(1, math.ceil(len(powers) / wanted))
            return [10.0**p for p in powers][::every]
        step = round_step((self.high - self.low) / max(1, wanted))
        first = math.ceil(self.low / step - 1e-9)
        return [step * k for k in range(first, first + 50) if step * k <= self.high + 1e-9 * step]


def round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    if not rough > 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9))


def around(values: list[float], start: float, end: float, *, least_spread: float = 0.2) -> Scale:
    """A scale that holds the values; by logarithm when they span a factor of 30.

    least_spread: share of the middle that the height stands for at least, so that noise looks like
    noise.
    """
    finite = [v for v in values if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low > 0 and high / low >= 30:
        return Scale(low / 1.3, high * 1.3, start, end, logarithmic=True)
    middle = (low + high) / 2
    spread = max(high - low, least_spread * abs(middle)) or 1.0
    bottom = middle - 0.6 * spread
    if low >= 0 and bottom < 0.3 * high:
        bottom = 0.0
    return Scale(bottom, middle + 0.6 * spread, start, end)


def tick_text(value: float) -> str:
    """As short as it can be without being wrong."""
    return number(0.0 if abs(value) < 1e-12 else value)


def duration(seconds: float) -> str:
    """``0``, ``40 s``, ``2 min 4 s``, ``3 h``, ``2 d 6 h``: two units at most."""
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds else "0"
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    place = next(place for place, (size, _) in enumerate(units) if seconds >= size)
    (size, unit), (smaller, its_unit) = units[place : place + 2]
    whole, rest = divmod(round(seconds / smaller) * smaller, size)
    return f"{whole} {unit}" + (f" {rest // smaller} {its_unit}" if rest else "")


STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200)


def time_ticks(span_s: float, wanted: int = 4) -> list[float]:
    """Seconds from 0 on, at times that people count in."""
    days = 86_400 * round_step(span_s / wanted / 86_400)
    step = next((float(s) for s in STEPS_S if span_s / s <= wanted), days)
    return [step * k for k in range(int(span_s / step) + 1)]
