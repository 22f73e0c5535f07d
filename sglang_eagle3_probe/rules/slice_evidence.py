"""Slices of acceptance as evidence for rules."""

from __future__ import annotations

from sglang_eagle3_probe.analysis.slices import ENOUGH_ROUNDS, Slice, Slices
from sglang_eagle3_probe.rules.base import Seen


def enough(slices: Slices | None) -> list[Slice]:
    """Slices with enough rounds to be compared, in natural order."""
    if slices is None:
        return []
    return [s for s in slices.slices if s.acceptance.rounds >= ENOUGH_ROUNDS]


def rows(slices: Slices, where: str) -> list[Seen]:
    """Accept length per slice."""
    return [
        Seen(f"{slices.title}: {s.label}", length(s), f"{where}, {s.acceptance.rounds} rounds")
        for s in slices.slices
    ]


def length(piece: Slice) -> str:
    """``2.31 [2.25, 2.37]``"""
    seen = piece.acceptance
    interval = seen.accept_length_interval
    spread = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else ""
    return f"{seen.accept_length or 0.0:.2f}{spread}"
