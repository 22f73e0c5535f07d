"""Lists of layer ids, and what becomes of them on every family; N is ``shapes.LAYERS``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .shapes import LAYERS as N

EVERY = list(range(-1, N - 1))
"""Output ids of all boundaries that every class can capture, 0 to N - 1."""


@dataclass(frozen=True)
class Case:
    """A list as it is configured, and the boundaries wanted of it, or why it is refused.

    Where the class reaches boundary N, ``reaching`` takes the place of a refusal.
    """

    ids: list[int] | None
    boundaries: list[int] | None = None
    refusal: str = ""
    reaching: list[int] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def question(self) -> dict[str, Any]:
        """As the worker takes it."""
        return {"ids": self.ids, "settings": self.settings}


AFTER_LAST = "is the state after the last layer, which this class never captures"
OUTSIDE = "is outside"

PROBED: tuple[Case, ...] = (
    Case(None, [2, N // 2, N - 3]),
    Case(EVERY, [i + 1 for i in EVERY]),
    Case(EVERY[::-1], [i + 1 for i in EVERY[::-1]]),
    Case([-1, 2, 4], [0, 3, 5]),
    Case([4, -1, 2], [5, 0, 3]),
    Case([-1], [0]),
    Case([2, 3, 4], [3, 4, 5]),
    Case([5, 1, 2], [6, 2, 3]),
    Case([0, 3, 5], [0, 3, 5], settings={"layer_ids_unit": "boundary"}),
    Case([5, 0, 3], [6, 1, 4], settings={"layer_ids_unit": "output_id"}),
    Case([1, 2, 3], [5, 0, 1], settings={"layer_ids": (4, -1, 0)}),
    Case([1, 2, 3], [2, 3, 4]),
    Case([2, 3, N - 1], refusal=AFTER_LAST, reaching=[3, 4, N]),
    Case([N - 1, -1, 2], refusal=AFTER_LAST, reaching=[N, 0, 3]),
    Case([2, 3, N], refusal=OUTSIDE, reaching=[2, 3, N]),
    Case([N, 0, 3], refusal=OUTSIDE, reaching=[N, 0, 3]),
    Case([-1, 3, N], refusal=OUTSIDE),
    Case([-2, 1, 2], refusal=OUTSIDE),
    Case([0, 2, 30], refusal=OUTSIDE),
    Case([-1, 3, 3], refusal="stands there more than once"),
    Case([-1, 2, 4], refusal=OUTSIDE, settings={"layer_ids_unit": "boundary"}),
    Case([1, 2, 3], refusal=OUTSIDE, settings={"layer_ids": (4, -2, 0)}),
    Case([-1, 2, 4], [0, 3, 5]),
)
"""In this order on one and the same model: what a list leaves behind must not reach the next."""

STOCK: tuple[list[int], ...] = (EVERY, EVERY[1:])
"""Without the probe: with and without the embedding output."""
