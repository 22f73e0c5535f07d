"""TensorRT-LLM's SaveState: ``{prefix}_{iteration}.pt``, a list of dicts."""

from __future__ import annotations

from sglang_eagle3_probe.offline.comparing.training_states.record import Record, token_ids
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, part, sample

NAME = "TensorRT-LLM SaveState"
AUX = ("aux_hidden_states", "hidden_state_features")


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """``hidden_state`` [S, H] is the last state after the norm, the aux states have two names."""
    aux = next((name for name in AUX if name in record), None)
    if aux is None or "hidden_state" not in record:
        return None
    return sample(
        label,
        NAME,
        f"{aux} beside hidden_state (the last state, after the final norm)",
        token_ids(record, ("input_ids",), label),
        part(record[aux], aux, label, hidden),
        part(record["hidden_state"], "hidden_state", label, hidden),
        last_form="post-norm",
    )
