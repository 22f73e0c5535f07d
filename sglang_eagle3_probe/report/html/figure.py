"""What a page is made of: figures with their tables, tables alone, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

WIDE, NARROW = 600, 340
"""Pixels a figure is drawn for; the page shows the one that fits."""
MOST_ROWS = 200


@dataclass(frozen=True)
class Table:
    """Header and rows of plain text; the template escapes."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: frozenset[int] = frozenset({0})
    """Columns of words, set left; all others are numbers, set right."""
    one_per_column: bool = False
    """Columns but the first are things compared: rows in which they differ are marked."""

    @property
    def shown(self) -> Sequence[tuple[str, ...]]:
        return self.rows[:MOST_ROWS]

    @property
    def left_out(self) -> int:
        return max(0, len(self.rows) - MOST_ROWS)


def words(*columns: int) -> frozenset[int]:
    """Columns that hold words."""
    return frozenset(columns)


@dataclass(frozen=True)
class Figure:
    """One picture, drawn for wide and narrow pages, with the same numbers as a table."""

    name: str
    """Unique on a run's part of the page."""
    title: str
    says: str
    """What it shows, in a sentence or two: caption, and what a screen reader says of it."""
    wide: Markup
    narrow: Markup
    table: Table
    notes: tuple[str, ...] = ()
    broad: bool = False
    """Takes the whole width of the page."""


@dataclass(frozen=True)
class Missing:
    """Why a figure is not there, and what would bring it."""

    name: str
    title: str
    why: str


Shown: TypeAlias = Figure | Missing


def drawn(
    name: str,
    title: str,
    says: str,
    draw: Callable[[float], Markup],
    table: Table,
    notes: Sequence[str] = (),
) -> Figure:
    """A figure out of one function of the width."""
    return Figure(name, title, says, draw(WIDE), draw(NARROW), table, tuple(notes))


@dataclass(frozen=True)
class Multiples:
    """Small pictures of one kind, next to each other, with one table."""

    name: str
    title: str
    says: str
    pictures: Sequence[tuple[str, Markup]]
    """(caption, drawing)."""
    table: Table


@dataclass(frozen=True)
class Section:
    """A heading and what is under it."""

    name: str
    title: str
    lead: str = ""
    figures: Sequence[Shown] = ()
    pairs: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[str, Table]] = ()
    """(caption, table)."""
    folded: Sequence[tuple[str, Table]] = ()
    """The same, folded up."""
    missing: str = ""
    multiples: Sequence[Multiples] = ()
