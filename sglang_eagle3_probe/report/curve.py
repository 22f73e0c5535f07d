"""Acceptance per draft position, as numbers and bars."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from sglang_eagle3_probe.analysis.acceptance import INTERVAL_OVER, Acceptance, Rate
from sglang_eagle3_probe.report.verdict import Report, accept_length_text
from sglang_eagle3_probe.report.wiring import table

BAR = 20


class Bar:
    """A share as a bar of fixed width; plain ASCII where the terminal has no block characters."""

    def __init__(self, share: float, width: int = BAR) -> None:
        self._filled = round(share * width)
        self._width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        full, empty = ("#", ".") if options.ascii_only else ("\u2588", "\u2591")
        yield Segment(full * self._filled, Style(color="cyan"))
        yield Segment(empty * (self._width - self._filled), Style(dim=True))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> object:
        from rich.measure import Measurement

        return Measurement(self._width, self._width)


def acceptance_section(report: Report) -> RenderableType:
    """Accept length, the curve, and what it is made of."""
    seen = report.evidence.acceptance
    if not seen.rounds:
        return Text("No verify round was recorded.", style="dim")
    head = Text.assemble(
        (accept_length_text(report), "bold"),
        f" tokens per round (bonus token included; 95 % over {INTERVAL_OVER})",
    )
    rate = f"accept rate {seen.accept_rate:.2f} (correct drafts / proposed positions)"
    made_of = f"{seen.rounds} rounds of {seen.requests} requests on {_from(report)}; {rate}"
    if len(seen.steps) > 1:
        made_of += "; steps vary: " + ", ".join(f"{s} in {n}" for s, n in seen.steps.items())
    left_out = report.evidence.rounds.not_counted
    if left_out:
        made_of += f"; {left_out} rows of ended requests not counted"
    return Group(head, Text(made_of, style="dim"), Text(), curve(seen), _histogram(seen))


def _from(report: Report) -> str:
    return ", ".join(report.evidence.rounds_from)


def curve(seen: Acceptance) -> RenderableType:
    """One row per draft position."""
    result = table()
    result.add_column("draft", justify="right", no_wrap=True)
    result.add_column("all right up to here", no_wrap=True)
    result.add_column("rate [95 %]", no_wrap=True)
    result.add_column("given the ones before", no_wrap=True)
    result.add_column("rounds", justify="right", no_wrap=True)
    for whole, given in zip(seen.unconditional, seen.conditional, strict=True):
        result.add_row(
            str(whole.position),
            Bar(whole.share or 0.0),
            _rate(whole),
            _rate(given),
            str(whole.seen),
        )
    return result


def _rate(rate: Rate) -> str:
    if rate.share is None:
        return "unseen"
    return f"{rate.share:.3f} [{rate.interval.low:.3f}, {rate.interval.high:.3f}]"


def _histogram(seen: Acceptance) -> RenderableType:
    shares = ", ".join(f"{c}: {n / seen.rounds:.0%}" for c, n in enumerate(seen.histogram))
    return Text(f"rounds by correct drafts  {shares}", style="dim")
