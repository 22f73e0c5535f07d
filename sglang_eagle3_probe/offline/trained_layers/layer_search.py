"""Finding the best ordered combination of boundaries without trying all of them.

One slot at a time is changed to every boundary, the others held, until no change helps; then pairs
of slots are swapped. Every boundary is scored on few rows, the best of them on more. That is done
from several starts: lists that people use, and one where every slot holds the mean of all
boundaries until its turn comes. Neighbours are alike, so scores vary smoothly and this finds the
best (the tests compare it with trying everything).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from sglang_eagle3_probe.offline.trained_layers.slot_parts import MEAN

Columns = tuple[int, ...]
Score = Callable[[Columns], float]

KEPT = 4
"""Boundaries of a slot that get the thorough score."""
SWEEPS = 6
STRIDE_ABOVE = 24
"""With more boundaries, every third is scored first and then what lies around the best."""
STRIDE = 3


@dataclass
class LayerSearch:
    """The search over ``slots`` slots and ``columns`` boundaries, no boundary twice.

    Attributes:
        quick: score on few rows. thorough: on more; both higher is better.
        scored: combination -> thorough score, of all that got one.
        quick_count: combinations scored quickly.
    """

    slots: int
    columns: int
    quick: Score
    thorough: Score
    scored: dict[Columns, float] = field(default_factory=dict)
    _quick: dict[Columns, float] = field(default_factory=dict, repr=False)

    @property
    def quick_count(self) -> int:
        return len(self._quick)

    def run(self, starts: Iterable[Columns]) -> Columns:
        """The best combination found.

        Args:
            starts: combinations to begin at; the best of them and the open one are followed.
        """
        fitting = [start for start in dict.fromkeys(starts) if self._fits(start)]
        named = sorted(fitting, key=self._thorough, reverse=True)
        ends = [self._descend(start) for start in [*named[:1], (MEAN,) * self.slots]]
        return max(ends, key=self._thorough)

    def near(self, centre: Columns) -> list[Columns]:
        """Combinations that differ by at most one in every slot, and the two-slot swaps."""
        shifts = (
            product((-1, 0, 1), repeat=self.slots)
            if self.slots <= 3
            else [
                tuple(step if slot == at else 0 for at in range(self.slots))
                for slot in range(self.slots)
                for step in (-1, 1)
            ]
        )
        moved = (tuple(c + d for c, d in zip(centre, shift, strict=True)) for shift in shifts)
        whole = (tuple(c + d for c in centre) for d in (-1, 1))
        return [
            found
            for found in dict.fromkeys([*moved, *whole, *self._swaps(centre)])
            if found != centre and self._fits(found)
        ]

    def ranked(self, extra: Iterable[Columns] = ()) -> list[Columns]:
        """Everything that has a thorough score, best first; ``extra`` gets one."""
        for columns in extra:
            self._thorough(columns)
        return sorted(self.scored, key=lambda columns: self.scored[columns], reverse=True)

    # -- one descent ----------------------------------------------------------------------------

    def _descend(self, start: Columns) -> Columns:
        current = start
        for _ in range(SWEEPS):
            before = current
            for slot in range(self.slots):
                current = self._best_at(current, slot)
            current = max([current, *self._swaps(current)], key=self._thorough)
            if current == before:
                break
        return current

    def _best_at(self, current: Columns, slot: int) -> Columns:
        """The best change of one slot; a boundary that another slot holds changes places."""
        tried = range(self.columns)
        if self.columns > STRIDE_ABOVE:
            coarse = {0, 1, 2, current[slot], *range(0, self.columns, STRIDE), self.columns - 1}
            coarse.discard(MEAN)
            best = self._order(current, slot, coarse)[:3]
            around = {c + d for c in best for d in range(1 - STRIDE, STRIDE)}
            columns = {c for c in coarse | around if 0 <= c < self.columns}
        else:
            columns = set(tried)
        kept = [_changed(current, slot, c) for c in self._order(current, slot, columns)[:KEPT]]
        if MEAN not in current:
            kept.append(current)
        return max(kept, key=self._thorough)

    def _order(self, current: Columns, slot: int, columns: Iterable[int]) -> list[int]:
        return sorted(
            columns, key=lambda c: self._quickly(_changed(current, slot, c)), reverse=True
        )

    def _swaps(self, columns: Columns) -> list[Columns]:
        found = []
        for a, b in combinations(range(self.slots), 2):
            swapped = list(columns)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            found.append(tuple(swapped))
        return found

    # -- scores ---------------------------------------------------------------------------------

    def _fits(self, columns: Sequence[int]) -> bool:
        return (
            len(columns) == self.slots
            and len(set(columns)) == self.slots
            and all(0 <= c < self.columns for c in columns)
        )

    def _quickly(self, columns: Columns) -> float:
        if columns not in self._quick:
            self._quick[columns] = self.quick(columns)
        return self._quick[columns]

    def _thorough(self, columns: Columns) -> float:
        if MEAN in columns:
            return self._quickly(columns)
        if columns not in self.scored:
            self.scored[columns] = self.thorough(columns)
        return self.scored[columns]


def _changed(current: Columns, slot: int, column: int) -> Columns:
    changed = list(current)
    if column in changed and changed[slot] != MEAN:
        changed[changed.index(column)] = changed[slot]
    elif column in changed:
        changed[changed.index(column)] = MEAN
    changed[slot] = column
    return tuple(changed)
