"""A curve over time in one line of characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
ASCII = "_.,-=+*#"
BROKEN = "!"
LEAST_SPREAD = 0.2
"""Share of the middle that the whole height stands for at least: noise shall look like noise."""


def levels(points: Sequence[tuple[float, bool]], width: int) -> list[int | None]:
    """0 to 7 per column, ``None`` where a value was marked broken. Oldest first.

    points: (value, broken). More points than columns are averaged, fewer take a column each.
    """
    if not points:
        return []
    columns = min(width, len(points))
    edges = [len(points) * i // columns for i in range(columns + 1)]
    cells = [points[a:b] for a, b in pairwise(edges)]
    means = [sum(value for value, _ in cell) / len(cell) for cell in cells]
    low, high = min(means), max(means)
    middle = (low + high) / 2
    spread = max(high - low, LEAST_SPREAD * abs(middle))
    bottom = middle - spread / 2
    return [
        None
        if any(broken for _, broken in cell)
        else min(7, int(8 * (mean - bottom) / spread))
        if spread
        else 3
        for mean, cell in zip(means, cells, strict=True)
    ]


class Sparkline:
    """Renders ``levels``; plain ASCII where the terminal has no block characters."""

    def __init__(self, points: Sequence[tuple[float, bool]], width: int) -> None:
        self._levels = levels(points, width)
        self._width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        marks = ASCII if options.ascii_only else BLOCKS
        for level in self._levels:
            if level is None:
                yield Segment(BROKEN, Style(color="red", bold=True))
            else:
                yield Segment(marks[level], Style(color="cyan"))
        yield Segment(" " * (self._width - len(self._levels)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self._width, self._width)
