"""Names what is between a served slot and the trained slot that stands in the same place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch

from sglang_eagle3_probe.offline.comparing.candidates import (
    Candidate,
    clearly,
    ranked,
    runner_up,
    served_states,
    trained_states,
)
from sglang_eagle3_probe.offline.comparing.measures import (
    Spread,
    cosines,
    empty_share,
    norm_ratios,
    normed_errors,
    relative_errors,
    scaled_errors,
    spread,
    turned_errors,
)
from sglang_eagle3_probe.offline.comparing.pairs import Pairs
from sglang_eagle3_probe.offline.comparing.stale import SHOWN, Moved, moved_rows, outlying
from sglang_eagle3_probe.offline.comparing.updates import DIRECTED, lies_between, update_of

Name: TypeAlias = Literal[
    "alike", "other_slot", "other_boundary", "embedding", "last_state", "normed", "scaled",
    "turned", "missing_residual", "partial_sum", "overwritten", "noise", "moved_rows", "empty",
    "undecided",
]  # fmt: skip
Side = Literal["served", "trained"]
"""Which side departs from what the slot is said to hold."""

ALIKE = 0.03
"""Median relative error that two right captures of one model may have: bfloat16, other kernels."""
NOISY = 0.35
"""Up to here a slot whose boundary is certain may differ by precision alone."""
EXPLAINED = 0.5
"""An identity explains a slot if its median error is below this, and clearly the smallest."""
FITTED = 0.1
"""A form with free numbers must do better: below this, and below half of every identity's."""
TURN_ROWS = 512
EMPTY = 0.5
FEW = 0.02
"""Share of rows that may be off, for whatever reason, in a slot that is called alike."""
LEAST_FOR_FITS = 32


@dataclass(frozen=True)
class Named:
    """The answer for one slot.

    Attributes:
        slot: from 0, in the order of the concatenation.
        boundary: h of the served slot as the server says.
        error, cosine, norm_ratio: of the pair, per token. The error is relative to the trained
            row, the ratio is served / trained.
        trained_boundary: h that the trained slot holds by its values, when that is certain.
        served_boundary: the same of the served slot.
        other: boundary h, or slot from 0, that the name refers to; -1: none.
        explained: median error that is left with the explanation.
        second: the same of the best other explanation.
        outliers: rows that differ far more than the median one, and the first of their positions.
        decoded_error: median at tokens of verify rounds, None where there are none.
    """

    slot: int
    boundary: int
    name: Name
    side: Side
    error: Spread
    cosine: Spread
    norm_ratio: Spread
    trained_boundary: int | None = None
    served_boundary: int | None = None
    other: int = -1
    of: str = ""
    explained: float | None = None
    second: float | None = None
    factor: float | None = None
    moved: Moved | None = None
    prompt_error: float | None = None
    decoded_error: float | None = None
    outliers: int = 0
    outlying_positions: tuple[int, ...] = ()
    best: tuple[tuple[str, int, float], ...] = field(default=())
    """The three nearest served states to the trained slot: kind, index, median error."""


def name_slot(pairs: Pairs, slot: int, *, directed: float = DIRECTED) -> Named:
    """Compares slot ``slot`` of both sides.

    Args:
        directed: median cosine with a layer's addition that is no chance.
    """
    return _Slot(pairs, slot, directed).named()


def name_slots(pairs: Pairs) -> tuple[Named, ...]:
    """Every slot that is on both sides.

    Where one slot lacks a part of a sum, others that differ most likely do so too, so less is
    asked of them.
    """
    count = min(pairs.served.shape[1], pairs.trained.shape[1])
    first = [name_slot(pairs, slot) for slot in range(count)]
    if not any(named.name == "partial_sum" for named in first):
        return tuple(first)
    return tuple(
        name_slot(pairs, named.slot, directed=DIRECTED / 2)
        if named.name in ("noise", "undecided")
        else named
        for named in first
    )


class _Slot:
    def __init__(self, pairs: Pairs, slot: int, directed: float) -> None:
        self.pairs, self.slot, self.directed = pairs, slot, directed
        self.served, self.trained = pairs.served[:, slot], pairs.trained[:, slot]
        self.h = pairs.info.boundaries[slot]
        self.errors = relative_errors(self.trained, self.served)
        self.error = float(self.errors.median())
        self.outliers = outlying(self.errors)
        self.served_pool = list(served_states(pairs))
        self.trained_pool = list(trained_states(pairs))
        self.of_trained = ranked(self.trained, self.served_pool)
        self.own = Candidate("slot", slot, self.served, self.errors)
        self.of_served = ranked(
            self.served,
            [s for s in self.served_pool if s[0] != "slot"]
            + [t for t in self.trained_pool if t[:2] != ("slot", slot)],
        )
        self.wrong: Side | None = None
        """Which side departs from the slot's boundary; None: that boundary was not captured."""
        if pairs.boundary(self.h) is not None:
            self.wrong = "trained" if self._own_boundary().median <= ALIKE else "served"

    def named(self) -> Named:
        """The first name that the numbers carry, from the plain ones to those with free numbers."""
        for side, rows in (("served", self.served), ("trained", self.trained)):
            if empty_share(rows) > EMPTY:
                return self._answer("empty", side)  # type: ignore[arg-type]
        moved = moved_rows(self.pairs, self.slot, self.errors)
        if moved is not None:
            return self._answer("moved_rows", "served", moved=moved)
        certain = self._certain(self.of_trained, self.own)
        if self.error <= ALIKE and certain is None:
            few = len(self.outliers) <= max(1, FEW * len(self.errors))
            return self._answer("alike" if few else "undecided", "served")
        ways = (self._identity, self._fitted, self._update)
        for way in ways:
            found = way()
            if found is not None:
                return found
        if self._is_noise():
            return self._answer("noise", "trained")
        return self._answer("undecided", "trained")

    def _certain(self, order: list[Candidate], own: Candidate) -> Candidate | None:
        """The best identity, if it is beyond doubt and not the slot's own state."""
        if not order:
            return None
        best = order[0]
        if best.is_("boundary", self.h) or best.is_("slot", self.slot):
            return None
        second = runner_up(order)
        # Without the boundaries between them, a neighbour of the right one may be the nearest slot.
        most = EXPLAINED if self.pairs.info.all_boundaries else 2 * ALIKE
        if best.median > most or not clearly(best, own):
            return None
        if best.kind == "boundary" and best.median > ALIKE:
            rows = self.served if order is self.of_served else self.trained
            if lies_between(self.pairs, rows, best.index):
                return None
        return best if second is None or clearly(best, second) else None

    def _identity(self) -> Named | None:
        served_is = self._certain(self.of_served, self._own_boundary())
        if served_is is not None and served_is.kind != "slot":
            return self._by_identity(served_is, "served", self.of_served)
        trained_is = self._certain(self.of_trained, self.own)
        if trained_is is not None:
            return self._by_identity(trained_is, "trained", self.of_trained)
        if served_is is not None:
            return self._by_identity(served_is, "served", self.of_served)
        return None

    def _own_boundary(self) -> Candidate:
        """What the served slot should be: its boundary, or else the trained slot."""
        own = self.pairs.boundary(self.h)
        rows = own if own is not None else self.trained
        return Candidate("boundary", self.h, rows, relative_errors(self.served, rows))

    def _by_identity(self, found: Candidate, side: Side, order: list[Candidate]) -> Named:
        second = runner_up(order)
        known = {
            "other": found.index,
            "of": found.kind,
            "explained": found.median,
            "second": second.median if second is not None else None,
        }
        if found.kind in ("final_norm", "last"):
            return self._answer("last_state", side, **known)
        if found.kind == "slot":
            return self._answer("other_slot", side, **known)
        boundaries, h = self.pairs.info.boundaries, max(0, found.index)
        if h in boundaries:
            other = boundaries.index(h)
            return self._answer("other_slot", side, **{**known, "other": other})
        if h == 0:
            return self._answer("embedding", side, **{**known, "other": 0})
        return self._answer("other_boundary", side, **known)

    def _fitted(self) -> Named | None:
        """Forms with free numbers: a factor, a norm with its weight, a turned basis."""
        nearest = min(
            order[0].median
            for side, order in (("served", self.of_served), ("trained", self.of_trained))
            if order and self.wrong in (side, None)
        )
        most = min(FITTED, 0.5 * nearest)
        factor, errors = scaled_errors(self.trained, self.served)
        if factor and float(errors.median()) <= most:
            return self._answer(
                "scaled", "served", factor=1 / factor, explained=float(errors.median())
            )
        if len(self.errors) < LEAST_FOR_FITS:
            return None
        return self._normed(most) or self._turned(nearest)

    def _normed(self, most: float) -> Named | None:
        """A norm of a boundary; without boundaries, of the slot on the other side."""
        own = [(self.h, self.trained if self.wrong == "served" else self.served)]
        states = [(h, rows) for kind, h, rows in self.served_pool if kind == "boundary"] or own
        ways: list[tuple[float, Side, int]] = []
        if self.wrong != "served":
            ways += [(_fit(self.trained, rows), "trained", h) for h, rows in states]
        if self.wrong != "trained":
            against = states if self.wrong == "served" else [(self.h, self.trained)]
            ways += [(_fit(self.served, rows), "served", h) for h, rows in against]
        error, side, h = min(ways)
        if error > most:
            return None
        return self._answer("normed", side, other=h, of="boundary", explained=error)

    def _turned(self, nearest: float) -> Named | None:
        if nearest < EXPLAINED:
            return None
        rows = slice(0, TURN_ROWS)
        error = float(turned_errors(self.trained[rows], self.served[rows]).median())
        ratio = spread(norm_ratios(self.served, self.trained))
        if error > FITTED or not 0.9 < ratio.median < 1.1:
            return None
        return self._answer("turned", "served", explained=error)

    def _update(self) -> Named | None:
        """Names that follow from how the difference lies to the layers' own updates."""
        side: Side = "served" if self.wrong == "served" else "trained"
        rows, order = (
            (self.served, self.of_served) if side == "served" else (self.trained, self.of_trained)
        )
        near = next((c.index for c in order if c.kind == "boundary"), self.h)
        found = update_of(self.pairs, rows, self.h, near, self.directed)
        if found is None:
            return None
        if found.name == "lacking_elsewhere":
            return self._answer("partial_sum", "served", explained=1 - found.cosine)
        return self._answer(found.name, side, explained=1 - found.cosine)

    def _is_noise(self) -> bool:
        """The boundary is certain and the gap small: the same states in another precision."""
        if not self.pairs.same_beginning or self.error > NOISY or not self.of_trained:
            return False
        best = self.of_trained[0]
        if not (best.is_("boundary", self.h) or best.is_("slot", self.slot)):
            return False
        second = runner_up(self.of_trained)
        neighbours = [self.pairs.boundary(self.h + step) for step in (-1, 1)]
        beside = any(n is not None for n in neighbours)
        return beside and (second is None or clearly(best, second))

    def _answer(self, name: Name, side: Side, **more: object) -> Named:
        return Named(
            slot=self.slot,
            boundary=self.h,
            name=name,
            side=side,
            error=spread(self.errors),
            cosine=spread(cosines(self.trained, self.served)),
            norm_ratio=spread(norm_ratios(self.served, self.trained)),
            trained_boundary=self._boundary_of(self.of_trained),
            served_boundary=self._boundary_of(self.of_served),
            prompt_error=_median(self.errors[~self.pairs.decoded]),
            decoded_error=_median(self.errors[self.pairs.decoded]),
            outliers=len(self.outliers),
            outlying_positions=tuple(self.pairs.positions[self.outliers[:SHOWN]].tolist()),
            best=tuple((c.kind, c.index, c.median) for c in self.of_trained[:3]),
            **more,  # type: ignore[arg-type]
        )

    def _boundary_of(self, order: list[Candidate]) -> int | None:
        if not order or order[0].kind not in ("boundary", "embedding"):
            return None
        second = runner_up(order)
        sure = order[0].median <= EXPLAINED and (second is None or clearly(order[0], second))
        return max(0, order[0].index) if sure else None


def _fit(target: torch.Tensor, candidate: torch.Tensor) -> float:
    return float(normed_errors(target, candidate).median())


def _median(errors: torch.Tensor) -> float | None:
    return float(errors.median()) if len(errors) else None
