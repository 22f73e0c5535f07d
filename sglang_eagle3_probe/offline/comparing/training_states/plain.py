"""Any other file with token ids and states under names that say what they are."""

from __future__ import annotations

from sglang_eagle3_probe.offline.comparing.training_states.record import (
    Record,
    Stored,
    Value,
    token_ids,
)
from sglang_eagle3_probe.offline.comparing.training_states.sample import Part, Sample, part, sample

NAME = "plain"
IDS = ("input_ids", "token_ids", "tokens", "ids", "prompt_ids", "prompt_token_ids")
AUX = (
    "aux", "aux_hidden_states", "aux_hidden_state", "hidden_states", "hidden_state", "hiddens",
    "hidden", "states",
)  # fmt: skip
LAST = ("last_hidden_state", "last_hidden_states", "last", "target", "final")


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """Ids under a usual name; the first tensor of states is the aux states."""
    if not any(name in record for name in IDS):
        return None
    aux, last = _first(record, AUX), _first(record, LAST)
    if aux is None and last is None:
        return None
    return sample(
        label,
        NAME,
        f"names of no known producer: {', '.join(name for name in (aux, last) if name)}",
        token_ids(record, IDS, label),
        _part(record, aux, label, hidden),
        _part(record, last, label, hidden),
        stacked=last is None,
    )


def _part(record: Record, name: str | None, label: str, hidden: int) -> Part | None:
    return part(record[name], name, label, hidden) if name is not None else None


def _first(record: Record, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if _states(record.get(name))), None)


def _states(value: Value) -> bool:
    return (isinstance(value, Stored) and value.floating) or (
        isinstance(value, list) and any(isinstance(entry, Stored) for entry in value)
    )
