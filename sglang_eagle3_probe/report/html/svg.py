"""Drawing: a small SVG writer whose every text and attribute is escaped.

Colours are CSS classes, never values, so that light, dark and print are the style sheet's business.
Lengths are in SVG user units, which are CSS pixels at natural size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from sglang_eagle3_probe.report.lines import clean

LETTER = 0.58
"""Width of an average letter of the sans-serif face, in font sizes; a little on the wide side."""
BOLD = 1.16
"""How much wider bold letters are."""
FONT = 12.0
SMALL = 11.0


def text_width(text: str, size: float = FONT) -> float:
    """About how wide a text is."""
    return len(text) * size * LETTER


def fitted(text: object, width: float, size: float = FONT, *, bold: bool = False) -> str:
    """A text cut off so that it fits. The whole one belongs into the figure's table."""
    whole = clean(text)
    room = max(1, int(width / (size * LETTER * (BOLD if bold else 1))))
    return whole if len(whole) <= room else whole[: room - 1] + "\u2026"


def trim(value: float) -> str:
    """A coordinate in few characters."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


class Drawing:
    """Collects shapes; ``markup`` is the whole ``<svg>``."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[Markup] = []

    def add(self, name: str, css: str, text: object = None, **attributes: object) -> None:
        """One element. Underscores in attribute names become hyphens."""
        parts = [f'<{name} class="{escape(css)}"']
        for key, value in attributes.items():
            shown = trim(value) if isinstance(value, float) else clean(value)
            parts.append(f' {key.replace("_", "-")}="{escape(shown)}"')
        body = "/>" if text is None else f">{escape(clean(text))}</{name}>"
        self._parts.append(Markup("".join(parts) + body))

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, radius: float = 0
    ) -> None:
        self.add("rect", css, x=x, y=y, width=max(0.0, width), height=max(0.0, height), rx=radius)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self.add("line", css, x1=x1, y1=y1, x2=x2, y2=y2)

    def circle(self, x: float, y: float, radius: float, css: str) -> None:
        self.add("circle", css, cx=x, cy=y, r=radius)

    def diamond(self, x: float, y: float, radius: float, css: str) -> None:
        self.path(
            [(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], css, closed=True
        )

    def cross(self, x: float, y: float, radius: float, css: str) -> None:
        self.line(x - radius, y - radius, x + radius, y + radius, css)
        self.line(x - radius, y + radius, x + radius, y - radius, css)

    def path(
        self, points: Sequence[tuple[float, float]], css: str, *, closed: bool = False
    ) -> None:
        """Straight pieces from point to point."""
        if points:
            steps = "L".join(f"{trim(x)} {trim(y)}" for x, y in points)
            self.add("path", css, d=f"M{steps}{'Z' * closed}")

    def curve(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """From left to right, level at both ends."""
        middle = (x1 + x2) / 2
        points = (x1, y1, middle, y1, middle, y2, x2, y2)
        a, b, c, d, e, f, g, h = (trim(p) for p in points)
        self.add("path", css, d=f"M{a} {b}C{c} {d} {e} {f} {g} {h}")

    def arrow(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """A straight arrow; the head is drawn, since markers need ids that must not repeat."""
        angle = math.atan2(y2 - y1, x2 - x1)
        self.line(x1, y1, x2 - 4 * math.cos(angle), y2 - 4 * math.sin(angle), css)
        head = [
            (x2 - 8 * math.cos(angle + turn), y2 - 8 * math.sin(angle + turn))
            for turn in (-0.4, 0.4)
        ]
        self.path([head[0], (x2, y2), head[1]], f"{css} head", closed=True)

    def text(
        self,
        x: float,
        y: float,
        text: object,
        css: str = "t",
        *,
        anchor: str = "start",
        size: float = FONT,
    ) -> None:
        """One line; y is the baseline. anchor: ``start``, ``middle`` or ``end``."""
        self.add("text", css, text, x=x, y=y, text_anchor=anchor, font_size=size)

    @property
    def markup(self) -> Markup:
        """Hidden from screen readers: the figure around it has the words."""
        head = Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" aria-hidden="true" focusable="false" '
            'viewBox="0 0 {w} {h}" width="{w}" height="{h}">'
        ).format(w=trim(self.width), h=trim(self.height))
        return Markup("").join([head, *self._parts, Markup("</svg>")])


def legend(
    drawing: Drawing, entries: Sequence[tuple[str, str, str]], x: float, y: float, width: float
) -> float:
    """Rows of (shape, class, words); shape is ``box``, ``line``, ``dash``, ``dot`` or ``diamond``.

    Returns:
        The y below the last row.
    """
    left = x
    for shape, css, words in entries:
        needed = 22 + text_width(words, SMALL) + 12
        if x > left and x + needed - 12 > left + width:
            x, y = left, y + 17
        if shape == "box":
            drawing.rect(x, y - 9, 14, 10, css, 2)
        elif shape == "dot":
            drawing.circle(x + 7, y - 4, 4, css)
        elif shape == "diamond":
            drawing.diamond(x + 7, y - 4, 5, css)
        else:
            drawing.line(x, y - 4, x + 16, y - 4, css)
        drawing.text(x + 21, y, words, "t soft", size=SMALL)
        x += needed
    return y + 17


def legend_height(entries: Sequence[tuple[str, str, str]], width: float) -> float:
    """What ``legend`` would take."""
    return legend(Drawing(0, 0), entries, 0, 0, width)
