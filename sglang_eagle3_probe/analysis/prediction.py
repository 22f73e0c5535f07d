"""The acceptance that the trainer's accuracies promise, against the one measured.

The file (``report --predicted FILE``) is one JSON object:

    {"accuracy": [0.83, 0.83, 0.82], "joint": [0.83, 0.70, 0.60], "positions": 8128}

accuracy: per draft step, the share of positions at which that step's token is the target's,
whatever the steps before did; they multiply to the curve (**by product**). joint: the share at
which steps 0..k are all right; this is the curve already (**by survival**). One of the two is
enough; with both, survival is what is compared, since steps are right together more often than by
chance. positions: how many were measured (optional; without it the promise is taken as exact). The
object may also stand inside another under any name; ``held_out_generations`` is taken before
others, so the ``trainer_accuracy.json`` beside a draft can be named as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import msgspec

from sglang_eagle3_probe.analysis.acceptance import Acceptance, Rate
from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.analysis.intervals_of_differences import share_difference

MOST_STEPS = 64
MOST_BYTES = 1 << 20
PREFERRED = "held_out_generations"

SMALL = 0.02
LARGE = 0.10
"""Gaps of a share that surely exceed this are a pattern (small) or a fault (large). A trainer's
positions are not those that serving meets, so a few hundredths mean nothing by themselves."""
LEAST_ROUNDS = 100

Reading = Literal["product", "survival"]
Pattern = Literal["none", "first", "later", "uniform", "better"]


class PredictionError(ValueError):
    """The file is no prediction. One line: what is wrong, what was expected, and a fix."""


@dataclass(frozen=True)
class Curve:
    """Expected acceptance per position."""

    reading: Reading
    unconditional: tuple[float, ...]

    @property
    def conditional(self) -> tuple[float, ...]:
        """Given the positions before; 0 after a position that is never right."""
        before = (1.0, *self.unconditional[:-1])
        return tuple(u / b if b else 0.0 for u, b in zip(self.unconditional, before, strict=True))

    def length(self, steps: int) -> float:
        """Expected accept length (bonus included) of a chain of so many steps."""
        return 1 + sum(self.unconditional[:steps])


@dataclass(frozen=True)
class Prediction:
    """What the trainer reports."""

    source: str
    accuracy: tuple[float, ...] | None
    joint: tuple[float, ...] | None
    positions: int | None

    @property
    def by_product(self) -> Curve | None:
        if self.accuracy is None:
            return None
        curve, product = [], 1.0
        for share in self.accuracy:
            product *= share
            curve.append(product)
        return Curve("product", tuple(curve))

    @property
    def by_survival(self) -> Curve | None:
        """The joint shares; without them the accuracies, if they can be read so (never rising)."""
        if self.joint is not None:
            return Curve("survival", self.joint)
        if self.accuracy is not None and _falls(self.accuracy):
            return Curve("survival", self.accuracy)
        return None

    @property
    def expected(self) -> Curve:
        """The curve that is compared: joint shares if given, else the product."""
        curve = self.by_survival if self.joint is not None else self.by_product
        assert curve is not None  # parse() takes no file without either
        return curve


def parse(data: bytes, source: str) -> Prediction:
    """Read the file's bytes.

    Raises:
        PredictionError: they are not what the module's docstring describes.
    """
    if len(data) > MOST_BYTES:
        raise _error(source, f"it has {len(data)} bytes, more than {MOST_BYTES}")
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _error(source, f"it is not JSON ({_short(error)})") from None
    found, where = _find(whole, source)
    lists = {
        key: _shares(found[key], f"{where}{key}", source)
        for key in ("accuracy", "joint")
        if found.get(key) is not None
    }
    accuracy, joint = lists.get("accuracy"), lists.get("joint")
    if joint is not None and not _falls(joint):
        raise _error(
            source, f"{where}joint rises, which shares of positions with all steps right cannot"
        )
    if accuracy and joint and len(accuracy) != len(joint):
        raise _error(source, f"{where}accuracy has {len(accuracy)} steps and joint {len(joint)}")
    positions = found.get("positions")
    if positions is not None and (
        isinstance(positions, bool) or not isinstance(positions, int) or not 0 < positions < 1 << 53
    ):
        raise _error(source, f"{where}positions is {_short(positions)}, not a count")
    return Prediction(source, accuracy, joint, positions)


def _find(whole: Any, source: str) -> tuple[Mapping[str, Any], str]:
    if not isinstance(whole, dict):
        raise _error(source, f"it holds a {type(whole).__name__}, not an object")
    if _is_prediction(whole):
        return whole, ""
    inside = [key for key, value in whole.items() if _is_prediction(value)]
    if PREFERRED in inside or len(inside) == 1:
        key = PREFERRED if PREFERRED in inside else inside[0]
        return whole[key], f"{_short(key)}."
    if inside:
        raise _error(source, f"several of its objects hold accuracies ({_short(inside)})")
    raise _error(source, "it holds neither accuracy nor joint")


def _is_prediction(value: Any) -> bool:
    return isinstance(value, dict) and any(
        value.get(key) is not None for key in ("accuracy", "joint")
    )


def _shares(value: Any, where: str, source: str) -> tuple[float, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_STEPS:
        raise _error(source, f"{where} is not a list of 1 to {MOST_STEPS} numbers")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, (int, float)) or not 0 <= item <= 1:
            hint = "; per cent must be divided by 100" if _is_per_cent(item) else ""
            raise _error(source, f"{where} holds {_short(item)}, not a share from 0 to 1{hint}")
    return tuple(float(item) for item in value)


def _is_per_cent(item: Any) -> bool:
    return not isinstance(item, bool) and isinstance(item, (int, float)) and 1 < item <= 100


def _falls(shares: tuple[float, ...]) -> bool:
    return all(a >= b for a, b in pairwise(shares))


def _short(value: object) -> str:
    # Files are not trusted: nothing of them that steers a terminal or fills the screen.
    text = str(value) if isinstance(value, (str, Exception)) else repr(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 60 else text[:57] + "..."


def _error(source: str, what: str) -> PredictionError:
    return PredictionError(
        f"{_short(source)} is no prediction: {what}. Expected: a JSON object such as "
        '{"accuracy": [0.83, 0.82, 0.81], "positions": 8000}. '
        "Fix: write the trainer's per-step accuracies so"
    )


@dataclass(frozen=True)
class Gap:
    """Predicted minus measured at one position."""

    position: int
    predicted: float
    measured: Rate
    gap: float
    interval: Interval


@dataclass(frozen=True)
class Comparison:
    """The promise against the traffic."""

    prediction: Prediction
    unconditional: tuple[Gap, ...]
    conditional: tuple[Gap, ...]
    steps: int
    """Steps that both have."""
    predicted_length: float
    """Of a chain of so many steps."""
    measured_length: float
    """1 + the measured unconditional rates of those positions."""
    greedy_only: bool
    """Rounds verified by sampling were left out: accuracies are about the target's argmax."""
    sampling_share: float | None
    """Of the rounds, where the traces say; rounds compared include them unless ``greedy_only``."""
    tree: bool
    """Measured on trees, which reach at least what a chain would."""
    pattern: Pattern

    @property
    def suggests(self) -> str:
        """What such a gap points to, in one sentence; empty without a gap."""
        return SUGGESTS[self.pattern]


SUGGESTS: dict[Pattern, str] = {
    "none": "",
    "first": "the first draft token is already worse than in training: layer ids, fc, vocabulary "
    "map or embedding, since nothing else has been at work there",
    "later": "the first draft token is as in training and later ones are not: what the draft hands "
    "itself (norm of the carried state, positions and rotary settings, draft KV cache)",
    "uniform": "every position is a little worse: traffic unlike the training data, a quantised or "
    "changed target, or one layer off by one",
    "better": "serving does better than the trainer measured: its prompts were harder",
}


def compare(
    prediction: Prediction,
    seen: Acceptance,
    *,
    greedy: Acceptance | None = None,
    sampling_share: float | None = None,
    tree: bool = False,
) -> Comparison | None:
    """Compare; ``None`` when no position was measured.

    greedy: acceptance of the rounds verified greedily, used instead when there are enough of them.
    """
    greedy_only = bool(sampling_share) and greedy is not None and greedy.rounds >= LEAST_ROUNDS
    if greedy_only and greedy is not None:
        seen = greedy
    curve = prediction.expected
    rates = [r for r in seen.unconditional[: len(curve.unconditional)] if r.seen]
    if not rates:
        return None
    given = [r for r in seen.conditional[: len(rates)] if r.seen]
    unconditional = _gaps(curve.unconditional, rates, prediction.positions)
    conditional = _gaps(curve.conditional, given, prediction.positions)
    return Comparison(
        prediction=prediction,
        unconditional=unconditional,
        conditional=conditional,
        steps=len(rates),
        predicted_length=curve.length(len(rates)),
        measured_length=1 + math.fsum(r.share or 0.0 for r in rates),
        greedy_only=greedy_only,
        sampling_share=sampling_share,
        tree=tree,
        pattern=pattern_of(conditional),
    )


def _gaps(
    predicted: tuple[float, ...], rates: list[Rate], positions: int | None
) -> tuple[Gap, ...]:
    gaps = []
    for rate in rates:
        share = predicted[rate.position]
        hits = share if positions is None else share * positions
        gap, interval = share_difference(hits, positions, rate.hits, rate.seen)
        gaps.append(Gap(rate.position, share, rate, gap, interval))
    return tuple(gaps)


def pattern_of(conditional: tuple[Gap, ...]) -> Pattern:
    """Which kind of gap this is, by conditional rates, whose positions do not drag each other down.

    A gap counts when its interval lies beyond the limit: large ones name a place, small ones count
    only when they are the rule and the first position has its share.
    """
    enough = [g for g in conditional if g.measured.seen >= LEAST_ROUNDS]
    if not enough or enough[0].position != 0:
        return "none"
    if enough[0].interval.low > LARGE:
        return "first"
    if any(g.interval.low > LARGE for g in enough[1:]):
        return "later"
    first = enough[0].interval
    if first.low > 0 and 2 * sum(g.interval.low > SMALL for g in enough) > len(enough):
        return "uniform"
    if first.high < 0 and 2 * sum(g.interval.high < -SMALL for g in enough) > len(enough):
        return "better"
    return "none"
