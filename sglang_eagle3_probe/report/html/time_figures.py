"""What changed while the server ran: accept length, and the values of the tapped states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from sglang_eagle3_probe.analysis.slot_values import SiteValues
from sglang_eagle3_probe.analysis.timeline import Moment
from sglang_eagle3_probe.report.facts import number
from sglang_eagle3_probe.report.html.figure import Missing, Multiples, Shown, Table, drawn, words
from sglang_eagle3_probe.report.html.scale import Scale, around, duration, tick_text, time_ticks
from sglang_eagle3_probe.report.html.svg import SMALL, Drawing, text_width
from sglang_eagle3_probe.rules.evidence import RankEvidence

SERIES = 5
"""Line styles before they repeat."""
CELL = 270.0
CELL_HEIGHT = 128.0


def timeline_figure(
    name: str, moments: Sequence[Moment], started_s: float | None, mean: float | None
) -> Shown:
    """Accept length over the server's uptime."""
    title = "Accept length over time"
    if not moments:
        return Missing(name, title, "No verify round was recorded, so there is nothing over time.")
    if len(moments) < 3:
        return Missing(
            name,
            title,
            f"All rounds lie within {duration(sum(m.width_s for m in moments))}. A longer run "
            "shows whether acceptance falls while the server runs.",
        )
    start = min(started_s or moments[0].start_s, moments[0].start_s)
    least = min(moments, key=lambda m: m.accept_length)
    most = max(moments, key=lambda m: m.accept_length)
    width_s = moments[0].width_s
    says = (
        f"Tokens per verify round in each {duration(width_s)} since the server's trace began. "
        f"Lowest {least.accept_length:.2f} at {duration(round(least.start_s - start))}, highest "
        f"{most.accept_length:.2f} at {duration(round(most.start_s - start))}. The band is the "
        "95 % interval of each point; the line across is the whole run."
    )
    rows = [
        (
            duration(round(m.start_s - start)),
            f"{m.accept_length:.2f}" + _interval(m),
            str(m.rounds),
        )
        for m in moments
    ]
    table = Table(("after", "accept length [95 %]", "rounds"), rows)
    return drawn(name, title, says, _timeline(moments, start, mean), table)


def _interval(m: Moment) -> str:
    return f" [{m.interval.low:.2f}, {m.interval.high:.2f}]" if m.interval is not None else ""


def _timeline(
    moments: Sequence[Moment], start: float, mean: float | None
) -> Callable[[float], Markup]:
    def draw(width: float) -> Markup:
        d = Drawing(width, 210)
        span = moments[-1].start_s + moments[-1].width_s - start
        x = Scale(0, span, 36, width - 8)
        values = [m.accept_length for m in moments]
        y = around(values, 172, 12)
        y = Scale(max(1.0, y.low), max(y.high, max(1.0, y.low) + 0.1), 172, 12)
        for tick in y.ticks():
            d.line(36, y(tick), width, y(tick), "grid")
            d.text(30, y(tick) + 4, tick_text(tick), "t soft", anchor="end", size=SMALL)
        _time_axis(d, x, span, 172, width)
        if mean is not None:
            d.line(36, y(mean), width, y(mean), "mean")
        middle = [m.start_s + m.width_s / 2 - start for m in moments]
        for piece in _without_gaps(moments):
            band = [(x(middle[i]), y(_high(moments[i]))) for i in piece]
            band += [(x(middle[i]), y(_low(moments[i]))) for i in reversed(piece)]
            d.path(band, "band b0", closed=True)
            d.path([(x(middle[i]), y(values[i])) for i in piece], "l0")
        for i, value in enumerate(values):
            if len(values) <= 60:
                d.circle(x(middle[i]), y(value), 2.5, "s0")
        return d.markup

    return draw


def _low(m: Moment) -> float:
    return m.interval.low if m.interval is not None else m.accept_length


def _high(m: Moment) -> float:
    return m.interval.high if m.interval is not None else m.accept_length


def _without_gaps(moments: Sequence[Moment]) -> list[list[int]]:
    """Indices of bins that follow each other; an idle server leaves none."""
    pieces: list[list[int]] = []
    for i, m in enumerate(moments):
        if not i or m.start_s - moments[i - 1].start_s > 3 * m.width_s:
            pieces.append([])
        pieces[-1].append(i)
    return pieces


def _time_axis(d: Drawing, x: Scale, span_s: float, y: float, width: float) -> None:
    d.line(36, y, width, y, "axis")
    for tick in time_ticks(span_s, 5 if width > 400 else 3):
        d.line(x(tick), y, x(tick), y + 4, "axis")
        text = duration(tick)
        anchor = "end" if x(tick) + text_width(text, SMALL) / 2 > width else "middle"
        d.text(min(x(tick), width), y + 17, text, "t soft", anchor=anchor, size=SMALL)


# -- slot values ------------------------------------------------------------------------------


def values_multiples(name: str, rank: RankEvidence | None) -> Multiples | Missing:
    """RMS of every slot at every tapped place, over time."""
    title = "Values of the states, over time"
    if rank is None or not rank.values:
        return Missing(
            name,
            title,
            "Values were not recorded. Level stats takes RMS, maximum and non-finite counts of "
            "every slot inside the CUDA graphs: start the server with "
            "SGLANG_EAGLE3_PROBE_LEVEL=stats.",
        )
    sites = list(rank.values.values())
    broken = [f"{v.site} {v.name(i)}" for v in sites for i, s in enumerate(v.slots) if s.nonfinite]
    says = (
        "Root mean square of each slot, per window of a few seconds, in the order in which values "
        "flow. Axes by logarithm where slots lie a factor of 30 apart. "
        + (f"Crosses mark NaN or infinite values: {', '.join(broken[:6])}." if broken else "")
    )
    start = min((p.wall_s for v in sites for p in v.recent), default=0.0)
    end = max((p.wall_s for v in sites for p in v.recent), default=0.0)
    pictures = [(v.site, _site(v, start, end)) for v in sites if v.recent]
    return Multiples(name, title, says.strip(), pictures, _values_table(sites))


def _values_table(sites: Sequence[SiteValues]) -> Table:
    rows = []
    for v in sites:
        for place, slot in enumerate(v.slots):
            boundary = v.boundary(place)
            equal = slot.embedding
            rows.append(
                (
                    v.site,
                    str(place),
                    "-" if boundary is None else str(boundary),
                    str(slot.rows),
                    number(slot.rms_mean),
                    f"{number(slot.rms_min)} to {number(slot.rms_max)}",
                    number(slot.mean),
                    number(slot.absmax),
                    str(slot.nonfinite),
                    f"{equal.hits} of {equal.rows}" if equal.rows else "-",
                    v.tapped,
                )
            )
    header = ("site", "slot", "h", "rows", "RMS", "RMS least to most", "mean", "absmax")
    return Table((*header, "NaN/inf", "rows equal to embedding", "tapped"), rows, words(0, 10))


def _site(v: SiteValues, start: float, end: float) -> Markup:
    d = Drawing(CELL, CELL_HEIGHT)
    points = list(v.recent)
    slots = max(len(p.rms) for p in points)
    labels = [_slot_label(v, place) if slots > 1 else "" for place in range(slots)]
    right = CELL - 6 - max(text_width(text, SMALL) for text in labels)
    y = around([value for p in points for value in p.rms], 104, 8)
    span = max(1.0, end - start)
    x = Scale(0, span, 40, right)
    for tick in y.ticks(3):
        d.line(40, y(tick), right, y(tick), "grid")
        d.text(35, y(tick) + 4, tick_text(tick), "t soft", anchor="end", size=SMALL)
    d.line(40, 104, right, 104, "axis")
    for tick in time_ticks(span, 3):
        d.text(x(tick), 120, duration(tick), "t soft", anchor="middle", size=SMALL)
    ends: list[tuple[float, int]] = []
    for place in range(slots):
        known = [(p.wall_s - start, p.rms[place], p.nonfinite[place]) for p in points
                 if place < len(p.rms)]  # fmt: skip
        series = place % SERIES
        d.path([(x(t), y(value)) for t, value, _ in known], f"l{series}")
        if len(known) == 1:
            d.circle(x(known[0][0]), y(known[0][1]), 3, f"s{series}")
        for t, value, broken in known:
            if broken:
                d.cross(x(t), y(value), 4, "broken")
        if known:
            ends.append((y(known[-1][1]), place))
    if slots > 1:
        for at, place in _apart(ends, 13.0):
            d.text(right + 4, at + 4, labels[place], f"t c{place % SERIES}", size=SMALL)
    return d.markup


def _slot_label(v: SiteValues, place: int) -> str:
    boundary = v.boundary(place)
    return f"slot {place}" if boundary is None else f"h {boundary}"


def _apart(places: Sequence[tuple[float, int]], gap: float) -> list[tuple[float, int]]:
    """Labels moved down until none touches the one above."""
    result: list[tuple[float, int]] = []
    for at, place in sorted(places):
        result.append((max(at, result[-1][0] + gap) if result else at, place))
    return result
