"""Acceptance by draft position, and what the drafts that were refused were lost to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from sglang_eagle3_probe.analysis.acceptance import Acceptance, Rate
from sglang_eagle3_probe.analysis.anatomy import CAUSES, Anatomy
from sglang_eagle3_probe.analysis.prediction import Comparison
from sglang_eagle3_probe.report.html.figure import Missing, Shown, Table, drawn
from sglang_eagle3_probe.report.html.scale import Scale
from sglang_eagle3_probe.report.html.svg import SMALL, Drawing, legend, legend_height, text_width
from sglang_eagle3_probe.report.understanding import CAUSE_WORDS, looked_at

MOST_POSITIONS = 16


def curve_figure(name: str, seen: Acceptance, compared: Comparison | None) -> Shown:
    """Unconditional and conditional rates with their intervals, and the trainer's promise."""
    title = "Drafts accepted, by position"
    if not seen.rounds:
        return Missing(
            name,
            title,
            "No verify round was recorded. Send requests to the server; rounds are written as they "
            "happen.",
        )
    says = (
        f"Share of rounds in which draft 0 to this one were all right, falling from "
        f"{_percent(seen.unconditional[0].share)} to {_percent(seen.unconditional[-1].share)}, "
        "and the share given that those before were right. Bands and bars are 95 % intervals over "
        "rounds taken as independent."
        if seen.unconditional
        else "Rounds proposed no draft."
    )
    notes = []
    if compared is None:
        notes.append(
            "The trainer's promise is not drawn: add --predicted trainer_accuracy.json, the file "
            "with its per-step accuracies."
        )
    else:
        reading = compared.prediction.expected.reading
        notes.append(
            f"Promised accept length {compared.predicted_length:.2f} ({compared.prediction.source},"
            f" read by {reading}), measured {compared.measured_length:.2f}."
        )
        if compared.suggests:
            notes.append(f"Points to: {compared.suggests}.")
        if compared.greedy_only:
            notes.append("The promise is compared with greedy rounds alone.")
        if compared.tree:
            notes.append("Measured on trees, which reach at least what a chain would.")
    return drawn(name, title, says, _curve(seen, compared), _curve_table(seen, compared), notes)


def _percent(share: float | None) -> str:
    return "unseen" if share is None else f"{share:.1%}"


def _rate(rate: Rate) -> str:
    if rate.share is None:
        return "unseen"
    return f"{rate.share:.3f} [{rate.interval.low:.3f}, {rate.interval.high:.3f}]"


def _curve_table(seen: Acceptance, compared: Comparison | None) -> Table:
    gaps = {gap.position: gap for gap in compared.unconditional} if compared else {}
    header: tuple[str, ...] = (
        "draft",
        "all right up to here [95 %]",
        "given the ones before [95 %]",
        "rounds",
    )
    rows = []
    for whole, given in zip(seen.unconditional, seen.conditional, strict=True):
        row: tuple[str, ...] = (str(whole.position), _rate(whole), _rate(given), str(whole.seen))
        gap = gaps.get(whole.position)
        if compared is not None:
            row += (
                ("-", "-")
                if gap is None
                else (
                    f"{gap.predicted:.3f}",
                    f"{gap.gap:+.3f} [{gap.interval.low:+.3f}, {gap.interval.high:+.3f}]",
                )
            )
        rows.append(row)
    if compared is not None:
        header += ("promised", "promised - measured [95 %]")
    return Table(header, rows, frozenset())


def _curve(seen: Acceptance, compared: Comparison | None) -> Callable[[float], Markup]:
    def draw(width: float) -> Markup:
        entries = [
            ("line", "l0", "all right up to here"),
            ("line", "l1 dashed", "given the ones before"),
        ]
        if compared is not None:
            entries.append(("diamond", "hollow", "promised by the trainer"))
        top = legend_height(entries, width) + 12
        d = Drawing(width, top + 210)
        legend(d, entries, 0, 10, width)
        y = Scale(0, 1, top + 172, top)
        last = max(1, len(seen.unconditional) - 1)
        x = Scale(0, last, 52, width - 46)
        for tick in (0, 0.25, 0.5, 0.75, 1):
            d.line(36, y(tick), width, y(tick), "grid" if tick else "axis")
            d.text(30, y(tick) + 4, f"{tick:.0%}", "t soft", anchor="end", size=SMALL)
        every = max(1, round(last / (width / 40)))
        for position in range(0, len(seen.unconditional), every):
            d.text(x(position), top + 190, position, "t soft", anchor="middle", size=SMALL)
        d.text((36 + width) / 2, top + 206, "draft position", "t soft", anchor="middle", size=SMALL)
        _line(d, seen.conditional, x, y, "1 dashed", square=True)
        _line(d, seen.unconditional, x, y, "0", square=False)
        if compared is not None:
            points = [(x(g.position), y(g.predicted)) for g in compared.unconditional]
            d.path(points, "promise")
            for point in points:
                d.diamond(*point, 5, "hollow")
        for rate in (seen.unconditional[:1], seen.unconditional[-1:]):
            for r in rate:
                if r.share is not None:
                    # Below the point, where the curve has already passed, unless the axis is there.
                    below = y(r.share) + (18 if r.share > 0.12 else -9)
                    text = f"{r.share:.1%}"
                    d.text(x(r.position), below, text, "t c0", anchor="middle", size=SMALL)
        return d.markup

    return draw


def _line(
    d: Drawing, rates: Sequence[Rate], x: Scale, y: Scale, series: str, *, square: bool
) -> None:
    known = [(r.position, r.share, r.interval) for r in rates if r.share is not None]
    band = [(x(p), y(i.high)) for p, _, i in known]
    band += [(x(p), y(i.low)) for p, _, i in reversed(known)]
    if len(known) > 1:
        d.path(band, f"band b{series[0]}", closed=True)
    d.path([(x(p), y(share)) for p, share, _ in known], f"l{series}")
    for p, share, interval in known:
        d.line(x(p), y(interval.low), x(p), y(interval.high), f"bar l{series[0]}")
        if square:
            d.rect(x(p) - 3.5, y(share) - 3.5, 7, 7, f"s{series[0]}")
        else:
            d.circle(x(p), y(share), 4, f"s{series[0]}")


# -- refusals ---------------------------------------------------------------------------------


def anatomy_figure(name: str, parts: Anatomy, *, level: str = "") -> Shown:
    """Per position, rounds that reached it: right, or lost to which cause."""
    title = "Why drafts are refused"
    if not parts.refused:
        why = "No draft was refused" if parts.rounds else "No verify round was recorded"
        return Missing(name, title, f"{why}, so there is nothing to take apart.")
    if not parts.explained:
        return Missing(
            name,
            title,
            f"{parts.refused} drafts were refused and the trace does not say why. "
            + (
                "Level stats was on, so the draft's logits could not be tapped, or the probe that "
                "wrote this is older than refusals: see E3P906 and the skipped sites in --json."
                if level in ("stats", "capture")
                else "Level stats does: start the server with SGLANG_EAGLE3_PROBE_LEVEL=stats."
            ),
        )
    known = [share for share in parts.total if share.cause != "unknown"]
    worst = max(known, key=lambda share: share.count)
    says = (
        "Each bar is the rounds that got to this draft, split into those in which it was right and "
        f"those lost to each cause. Over all positions {CAUSE_WORDS[worst.cause]!r} takes most: "
        f"{worst.share:.0%} of {worst.refused} refusals."
    )
    notes = [f"{looked_at(parts)}."] if parts.not_looked_at else []
    lacking = parts.of("unknown")
    if lacking.count:
        notes.append(f"Of {lacking.share:.0%} of the refusals the trace does not say why.")
    if parts.unjoined:
        notes.append(f"{parts.unjoined} entries of refusals met no round.")
    if len(parts.positions) > MOST_POSITIONS:
        notes.append(f"Drawn are the first {MOST_POSITIONS} of {len(parts.positions)} positions.")
    return drawn(name, title, says, _bars(parts), _anatomy_table(parts), notes)


def _causes(parts: Anatomy) -> list[str]:
    return [cause for cause in CAUSES if parts.of(cause).count]


def _anatomy_table(parts: Anatomy) -> Table:
    rows = []
    for cause in _causes(parts):
        cells = []
        for shares in parts.positions:
            found = next((s for s in shares if s.cause == cause), None)
            if found is None:
                cells.append("-")
                continue
            limit = found.lost_interval
            cells.append(f"{found.lost:.1%} [{limit.low:.1%}, {limit.high:.1%}]")
        whole = parts.of(cause)
        rows.append((CAUSE_WORDS[cause], *cells, f"{whole.share:.1%}", str(whole.count)))
    columns = tuple(f"draft {place}" for place in range(len(parts.positions)))
    return Table(
        ("lost to, of the rounds that got there", *columns, "all refusals", "rounds"), rows
    )


def _bars(parts: Anatomy) -> Callable[[float], Markup]:
    causes = _causes(parts)

    def draw(width: float) -> Markup:
        entries = [("box", "right", "right")]
        entries += [("box", f"cause-{cause}", CAUSE_WORDS[cause]) for cause in causes]
        top = legend_height(entries, width) + 8
        shown = [(k, s) for k, s in enumerate(parts.positions) if s][:MOST_POSITIONS]
        row = 34.0
        d = Drawing(width, top + row * len(shown) + 22)
        legend(d, entries, 0, 10, width)
        x = Scale(0, 1, 58, width)
        for place, (position, shares) in enumerate(shown):
            y = top + row * place
            d.text(0, y + 16, f"draft {position}", "t")
            right = 1 - sum(s.lost for s in shares)
            pieces = [("right", right), *((f"cause-{s.cause}", s.lost) for s in shares)]
            at = 0.0
            for css, share in pieces:
                left, wide = x(at), x(at + share) - x(at)
                d.rect(left, y, wide - 1, 24, css)
                label = f"{share:.0%}"
                if wide > text_width(label, SMALL) + 6:
                    d.text(left + wide / 2, y + 16, label, f"on {css}", anchor="middle", size=SMALL)
                at += share
        for tick in (0, 0.5, 1):
            anchor = {0: "start", 0.5: "middle", 1: "end"}[tick]
            y = top + row * len(shown) + 8
            d.text(x(tick), y, f"{tick:.0%}", "t soft", anchor=anchor, size=SMALL)
        return d.markup

    return draw
