"""NVIDIA ModelOpt 0.41 to 0.47: ``{conversation_id}.pt``."""

from __future__ import annotations

from sglang_eagle3_probe.offline.comparing.training_states.record import Record, token_ids
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, part, sample

NAME = "ModelOpt"


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """``aux_hidden_states`` [S, nH]; ``hidden_states`` [S, H] is the last state.

    With the HF and TensorRT-LLM back ends it is after the final norm, with vLLM's before.
    """
    if "aux_hidden_states" not in record or "hidden_states" not in record:
        return None
    return sample(
        label,
        NAME,
        "aux_hidden_states beside hidden_states (here the last state)"
        + (" and conversation_id" if "conversation_id" in record else ""),
        token_ids(record, ("input_ids",), label),
        part(record["aux_hidden_states"], "aux_hidden_states", label, hidden),
        part(record["hidden_states"], "hidden_states", label, hidden),
    )
