"""Accept length by circumstance, and against what others published: dots with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sglang_eagle3_probe.analysis.acceptance import Acceptance
from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.analysis.reference_bank import Found
from sglang_eagle3_probe.analysis.slices import Slices
from sglang_eagle3_probe.report.html.figure import Missing, Shown, Table, drawn, words
from sglang_eagle3_probe.report.html.scale import Scale, tick_text
from sglang_eagle3_probe.report.html.svg import SMALL, Drawing, fitted, text_width

MOST_ROWS = 16
ROW = 24.0


@dataclass(frozen=True)
class Row:
    """One dot: what it is of, the accept length, its interval where known."""

    label: str
    value: float
    interval: Interval | None = None
    css: str = "s0"


def slice_figure(slices: Slices, whole: Acceptance) -> Shown:
    """One dimension in which the run has several buckets."""
    rows = [
        Row(s.label, s.acceptance.accept_length or 0.0, s.acceptance.accept_length_interval)
        for s in slices.slices
    ]
    least = min(rows, key=lambda row: row.value)
    most = max(rows, key=lambda row: row.value)
    span = f"from {least.value:.2f} ({least.label}) to {most.value:.2f} ({most.label})"
    if f"{least.value:.2f}" == f"{most.value:.2f}":
        span = f"{most.value:.2f} throughout"
    says = (
        f"Accept length by {slices.title}: {span}. Bars are 95 % intervals; the line is the whole "
        "run."
    )
    table = Table(
        (slices.title, "accept length [95 %]", "rounds"),
        [(s.label, _length(s.acceptance), str(s.acceptance.rounds)) for s in slices.slices],
    )
    notes = []
    shown = _both_ends(rows)
    if len(shown) < len(rows):
        notes.append(f"{len(rows) - len(shown)} buckets in the middle are in the table alone.")
    draw = dots(shown, whole.accept_length, "run")
    return drawn(
        f"slice-{slices.name}",
        slices.title[:1].upper() + slices.title[1:],
        says,
        draw,
        table,
        notes,
    )


def _length(seen: Acceptance) -> str:
    limit = seen.accept_length_interval
    text = f"{seen.accept_length or 0.0:.2f}"
    return f"{text} [{limit.low:.2f}, {limit.high:.2f}]" if limit is not None else text


def _both_ends(rows: list[Row]) -> list[Row]:
    half = MOST_ROWS // 2
    return rows if len(rows) <= MOST_ROWS else rows[:half] + rows[-half:]


def dots(
    rows: Sequence[Row], line: float | None, line_label: str, *, low: float | None = None
) -> Callable[[float], Markup]:
    """Rows of dots on one scale of accept length, with a line at one value."""

    def draw(width: float) -> Markup:
        longest = max((text_width(row.label) for row in rows), default=0.0)
        left = min(longest + 12, width * 0.46)
        values = [line] if line is not None else []
        for row in rows:
            values += [row.interval.low, row.interval.high] if row.interval else [row.value]
        least, most = min(values), max(values)
        margin = max(0.08 * (most - least), 0.05)
        x = Scale(least - margin if low is None else low, most + margin, left, width - 48)
        top, bottom = 20.0, 20.0 + ROW * len(rows)
        d = Drawing(width, bottom + 20)
        for tick in x.ticks(4 if width > 400 else 3):
            d.line(x(tick), top, x(tick), bottom, "grid")
            d.text(x(tick), bottom + 15, tick_text(tick), "t soft", anchor="middle", size=SMALL)
        if line is not None:
            d.line(x(line), top - 3, x(line), bottom, "mean")
            text = f"{line_label} {line:.2f}"
            d.text(x(line), 12, text, "t soft", anchor="middle", size=SMALL)
        for place, row in enumerate(rows):
            y = top + ROW * (place + 0.5)
            d.text(0, y + 4, fitted(row.label, left - 8), "t")
            if row.interval is not None:
                css = f"bar l{row.css[1:]}"
                d.line(x(row.interval.low), y, x(row.interval.high), y, css)
            d.circle(x(row.value), y, 4.5, row.css)
            d.text(width, y + 4, f"{row.value:.2f}", "t", anchor="end")
        return d.markup

    return draw


# -- references -------------------------------------------------------------------------------


def reference_figure(name: str, found: Found | None, seen: Acceptance, setting: str) -> Shown:
    """What others published under the same setting, against this run."""
    title = "What others published"
    if found is None:
        known = f"under {setting} (steps/topk/draft tokens)" if setting else ""
        return Missing(
            name,
            title,
            f"The reference bank holds nothing for this target {known}".rstrip()
            + ". It knows public accept lengths of Kimi-K2, Qwen3 and other EAGLE-3 drafts, by the "
            "target's name or class and the exact setting.",
        )
    references = found.references
    drafts = list(dict.fromkeys(r.draft for r in references))
    rows = []
    for r in references:
        # The draft's name would be the same on every row, or cut off where it differs.
        label = r.benchmark if len(drafts) == 1 else f"{r.benchmark}, {r.draft.split('/')[-1]}"
        rows.append(Row(label, r.accept_length, css="s2"))
    if seen.accept_length is not None:
        own = Row("this run", seen.accept_length, seen.accept_length_interval)
        rows.append(own)
        rows.sort(key=lambda row: row.value)
    targets = ", ".join(dict.fromkeys(r.target for r in references))
    whose = targets if found.how == "name" else f"other models of this class ({targets})"
    says = (
        f"Accept lengths of at most {found.least.ceiling}, published for {whose} under "
        f"{found.setting} (steps/topk/draft tokens): {found.least.accept_length:.2f} to "
        f"{found.greatest.accept_length:.2f}."
    )
    if len(drafts) == 1:
        says += f" Draft: {drafts[0]}."
    if seen.accept_length is not None:
        says += f" This run: {seen.accept_length:.2f}."
    table = Table(
        ("benchmark", "draft", "target", "engine", "batch", "temperature", "length", "source"),
        [
            (
                r.benchmark,
                r.draft,
                r.target,
                r.engine,
                "-" if r.batch_size is None else str(r.batch_size),
                "-" if r.temperature is None else f"{r.temperature:g}",
                f"{r.accept_length:.2f}",
                r.source,
            )
            for r in references
        ],
        words(0, 1, 2, 3, 7),
    )
    shown = _with_own(rows)
    notes = ["Prompts differ from yours: a benchmark of code accepts more than one of talk."]
    if len(shown) < len(rows):
        notes.append(f"Drawn are {len(shown)} of {len(rows)}, spread evenly; all in the table.")
    line = seen.accept_length
    return drawn(name, title, says, dots(shown, line, "here"), table, notes)


def _with_own(rows: list[Row]) -> list[Row]:
    if len(rows) <= MOST_ROWS:
        return rows
    kept = {round(i * (len(rows) - 1) / (MOST_ROWS - 1)) for i in range(MOST_ROWS)}
    return [row for i, row in enumerate(rows) if i in kept or row.css == "s0"]
