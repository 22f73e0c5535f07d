"""Which target layers a draft was trained on, as far as its files tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation, int_list
from sglang_eagle3_probe.host.conventions import Producer, recognise_producer
from sglang_eagle3_probe.host.producers import NESTED, TOP, Unit

ANGELSLIM = "aux_hidden_states_layer_ids"
WORDS = {"o": "output ids", "h": "boundaries", "unknown": "not known"}


@dataclass(frozen=True)
class Intent:
    """The list found and what it can mean."""

    key: str | None
    """Where the list stands; None: there is none."""
    ids: tuple[int, ...] | None
    unit: Unit
    why: str
    producer: Producer
    readings: tuple[tuple[Unit, tuple[int, ...]], ...]
    """Boundaries by each unit still possible; one entry when decided, none without layers."""

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """Boundaries the draft was trained on, when the files decide that."""
        return self.readings[0][1] if len(self.readings) == 1 else None


def producer_of(situation: Situation) -> Producer:
    """Who made the draft."""
    return recognise_producer(situation.draft.config, situation.draft.tensors)


def trained_on(situation: Situation) -> Intent:
    """The list in the draft's config, wherever it stands, with the unit it is written in."""
    producer = producer_of(situation)
    layers = situation.num_layers
    key, ids = _list(situation)
    if ids is None or key is None:
        standard = (2, layers // 2, layers - 3) if layers else None
        readings: tuple[tuple[Unit, tuple[int, ...]], ...] = (("h", standard),) if standard else ()
        return Intent(None, None, "h", "no list: every trainer's default", producer, readings)
    unit, why = _unit(key, ids, producer, layers)
    boundaries: dict[Unit, tuple[int, ...]] = {"o": tuple(o + 1 for o in ids), "h": ids}
    units: tuple[Unit, ...] = ("o", "h") if unit == "unknown" else (unit,)
    return Intent(key, ids, unit, why, producer, tuple((u, boundaries[u]) for u in units))


def _list(situation: Situation) -> tuple[str | None, tuple[int, ...] | None]:
    config: Any = situation.draft.config
    places = (
        (NESTED, situation.nested_ids),
        (ANGELSLIM, int_list(config.get(ANGELSLIM))),
        (TOP, situation.top_level_ids),
    )
    return next(((key, ids) for key, ids in places if ids), (None, None))


def _unit(
    key: str, ids: tuple[int, ...], producer: Producer, layers: int | None
) -> tuple[Unit, str]:
    if min(ids) == -1:
        return "o", "-1 exists only among output ids: the embedding"
    if layers and max(ids) == layers:
        return "h", f"output ids end at {layers - 1}"
    standard = (2, layers // 2, layers - 3) if layers else ()
    if ids == tuple(h - 1 for h in standard):
        return "o", "equal to the default in output ids"
    if key == ANGELSLIM:
        return "o", "AngelSlim writes output ids"
    if ids == standard and key == NESTED:
        return "unknown", "equal to the default in boundaries, at a place meant for output ids"
    if key == TOP:
        return "h", "lists at top level are boundaries (speculators, vLLM)"
    if producer.confidence == "guess" and producer.unit == "unknown":
        return "unknown", producer.why
    return producer.unit, f"{producer.name} writes {WORDS[producer.unit]}"
