"""From a configured list of aux layer ids to the boundaries that are captured. Pure functions.

Words: a *boundary* h is 0 for the embedding output, i for the residual stream that enters layer i;
an *output id* o is h - 1. SGLang's classes capture at the input of layer i, so what they keep in
``layers_to_capture`` are boundaries, in every class and release (0.5.9 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..settings import PREFIX, Unit

ReadAs = Literal["output_id", "boundary", "default"]


@dataclass(frozen=True)
class Requested:
    """A list of ids as somebody wrote it.

    Args:
        ids: the list, or ``None`` when nobody wrote one and SGLang's default holds.
        place: ``eagle_config``, ``variable`` or ``default``.
        unit: how the user wants it read.
    """

    ids: tuple[int, ...] | None
    place: str
    unit: Unit = "auto"


@dataclass(frozen=True)
class TargetFacts:
    """What of the target decides whether a boundary can be captured.

    Args:
        model_class: name of the served class.
        num_layers: N.
        reaches_last: the class can capture boundary N (after the last layer, before the norm).
        embedding_fault: what its own code does with boundary 0, where that is wrong.
    """

    model_class: str
    num_layers: int
    reaches_last: bool = False
    embedding_fault: str = ""


def reading(requested: Requested) -> tuple[ReadAs | None, str]:
    """How the list shall be read, and why; ``None``: leave it to SGLang's class.

    A list that holds -1 can only mean output ids, in every release: no class counts a boundary -1.
    """
    if requested.ids is None:
        return "default", "nothing configured: SGLang's default boundaries [2, N//2, N-3]"
    if requested.unit == "output_id":
        return "output_id", f"{PREFIX}_LAYER_IDS_UNIT says output ids"
    if requested.unit == "boundary":
        return "boundary", f"{PREFIX}_LAYER_IDS_UNIT says boundaries"
    if -1 in requested.ids:
        return "output_id", "the list holds -1, so all of it is output ids"
    return None, ""


def boundaries_of(ids: Sequence[int], read_as: ReadAs) -> tuple[int, ...]:
    """Boundaries in the order of the list."""
    return tuple(i + 1 for i in ids) if read_as == "output_id" else tuple(ids)


def inferred_reading(ids: Sequence[int], captured: Sequence[int]) -> tuple[ReadAs, str]:
    """How SGLang's class read a list, judged by what it captures afterwards."""
    if list(captured) == [i + 1 for i in ids]:
        return "output_id", "SGLang's class added 1 to each id of this list"
    if list(captured) == list(ids):
        return "boundary", "SGLang's class took this list as it is"
    return "boundary", "SGLang's class made other boundaries of this list"


def order_of(boundaries: Sequence[int]) -> tuple[int, ...] | None:
    """Which captured slot goes to each place of the list, or ``None`` if order already agrees.

    SGLang captures while it runs through the layers, so slots arrive ascending:
    entry j of the result is the arrival position of the list's j-th boundary.
    """
    ascending = sorted(boundaries)
    if list(boundaries) == ascending:
        return None
    return tuple(ascending.index(b) for b in boundaries)


def complaint(
    requested: Requested,
    read_as: ReadAs,
    boundaries: Sequence[int],
    target: TargetFacts,
    stock: str,
) -> str | None:
    """Why these boundaries cannot be captured, as a message for the user; ``None`` if they can.

    Args:
        stock: what unpatched SGLang would have done with the list, as a sentence part.
    """
    n = target.num_layers
    last = n if target.reaches_last else n - 1
    unit = _unit_text(read_as)
    written = list(requested.ids) if requested.ids is not None else list(boundaries)
    shift = 1 if read_as == "output_id" else 0
    head = (
        f"aux layer ids {written} (from {_place_text(requested.place)}; {unit}) cannot be captured "
        f"on {target.model_class} with {n} layers: "
    )
    tail = f" Stock SGLang {stock}. Nothing was served. "
    allowed = f"{0 - shift} to {last - shift}"
    repeated = sorted({b - shift for b in boundaries if list(boundaries).count(b) > 1})
    if repeated and requested.ids is None:
        return (
            head + f"the default [2, N//2, N-3] repeats {repeated} on a target this shallow."
            f"{tail}Fix: name distinct ids in the draft config's "
            f"eagle_config.eagle_aux_hidden_state_layer_ids, or in {PREFIX}_LAYER_IDS."
        )
    if repeated:
        return (
            head + f"{repeated} stands there more than once, and each boundary is captured once."
            f"{tail}Fix: list each id once; its number must match the draft's fc."
        )
    if any(b == n for b in boundaries) and not target.reaches_last:
        return (
            head + f"{n - shift} is the state after the last layer, which this class never "
            f"captures.{tail}Fix: use ids from {allowed} ({unit})."
        )
    outside = [b - shift for b in boundaries if not 0 <= b <= last]
    if outside:
        hint = ""
        if read_as == "boundary" and all(0 <= b + 1 <= last for b in boundaries):
            hint = f" If output ids were meant, set {PREFIX}_LAYER_IDS_UNIT=output_id."
        return (
            head
            + f"{outside} is outside {allowed}.{tail}Fix: use ids from {allowed} ({unit})."
            + hint
        )
    return None


def no_such_layer(requested: Requested, target: TargetFacts, stock: str) -> str:
    """Why a class's own setter raised IndexError on a list, as a message for the user.

    Only setters that flag layers look at the layers at all, and all of those add 1 to a list.
    """
    ids = requested.ids or ()
    return complaint(requested, "output_id", boundaries_of(ids, "output_id"), target, stock) or (
        f"aux layer ids {list(ids)} (from {_place_text(requested.place)}) name a layer that "
        f"{target.model_class} with {target.num_layers} layers does not have. Stock SGLang {stock}."
        f" Nothing was served. Fix: use ids from -1 to {target.num_layers - 2}."
    )


def width_complaint(
    boundaries: Sequence[int], hidden_width: int, fc_in_features: int, place: str
) -> str | None:
    """Why the concatenation cannot feed the draft's ``fc``; ``None`` if it can."""
    width = len(boundaries) * hidden_width
    if width == fc_in_features:
        return None
    expected = (
        f"{fc_in_features // hidden_width} ids"
        if fc_in_features % hidden_width == 0
        else f"a target of another hidden size (fc reads {fc_in_features}, not a multiple of "
        f"{hidden_width})"
    )
    return (
        f"{len(boundaries)} aux boundaries {list(boundaries)} (from {_place_text(place)}) x hidden "
        f"size {hidden_width} = {width}, but the draft's fc reads {fc_in_features}. Stock SGLang "
        "would start and then fail at the first prefill, or feed stale features without a word. "
        f"Nothing was served. Fix: give {expected} in the draft config's "
        f"eagle_config.eagle_aux_hidden_state_layer_ids or in {PREFIX}_LAYER_IDS, "
        "as the draft was trained."
    )


def _unit_text(read_as: ReadAs) -> str:
    return "read as output ids" if read_as == "output_id" else "read as boundaries"


def _place_text(place: str) -> str:
    return {
        "eagle_config": "the draft config's eagle_config",
        "variable": f"{PREFIX}_LAYER_IDS",
        "default": "SGLang's default",
    }.get(place, place)
