"""SpecForge 0.1 to 0.2 (``specforge_hidden_states_v1``): ``rows_*/data_*.ckpt``, also gzipped."""

from __future__ import annotations

from sglang_eagle3_probe.offline.comparing.training_states.record import Record, token_ids
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, part, sample

NAME = "SpecForge"


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """``aux_hidden_state`` [1, S, nH]; ``hidden_state`` is the last state after the norm."""
    if "aux_hidden_state" not in record or "hidden_state" not in record:
        return None
    return sample(
        label,
        NAME,
        "aux_hidden_state beside hidden_state (the last state, after the final norm)",
        token_ids(record, ("input_ids",), label),
        part(record["aux_hidden_state"], "aux_hidden_state", label, hidden),
        part(record["hidden_state"], "hidden_state", label, hidden),
        last_form="post-norm",
    )
