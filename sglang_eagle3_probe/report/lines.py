"""Text wrapped in one place, coloured by rich where there is rich and a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

WIDEST = 100
NARROWEST = 40


@dataclass(frozen=True)
class Line:
    """One line out of parts, each with a rich style or none."""

    parts: list[tuple[str, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts)


def blank() -> Line:
    return Line()


def clean(text: object) -> str:
    """Without what would steer a terminal: config files are not trusted."""
    return "".join(c if c.isprintable() else " " if c in "\n\t\r" else "?" for c in str(text))


def wrapped(
    head: str, text: object, width: int, head_style: str = "", style: str = ""
) -> list[Line]:
    """A text behind a head; further lines are set in below the text, by at most 12 columns."""
    words = clean(text)
    indent = " " * min(len(head), 12)
    rows = textwrap.wrap(
        head + words,
        width,
        subsequent_indent=indent,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [head.rstrip()]
    first = Line([(rows[0][: len(head)], head_style), (rows[0][len(head) :], style)])
    return [first, *(Line([(row, style)]) for row in rows[1:])]


def fields(rows: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Names and values, aligned."""
    across = max((len(name) for name, _ in rows), default=0) + 2
    lines: list[Line] = []
    for name, value in rows:
        lines += wrapped(name.ljust(across), value, width, "dim")
    return lines


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Line]:
    """Columns as wide as what is in them."""
    whole = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in whole
    ]
    return [Line([(clean(lines[0]), "dim")]), *(Line([(clean(line), "")]) for line in lines[1:])]


def width_of(stream: TextIO) -> int:
    """The terminal's, within reason; 100 into a pipe."""
    if not stream.isatty():
        return WIDEST
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))


def show(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Print; colours only on a terminal, if rich is there and NO_COLOR is not set."""
    out = stream or sys.stdout
    if out.isatty():
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            pass
        else:
            console = Console(file=out, highlight=False)
            if not console.no_color:
                for line in lines:
                    console.print(Text.assemble(*line.parts), soft_wrap=True)
                return
    for line in lines:
        print(line.text.rstrip(), file=out)
