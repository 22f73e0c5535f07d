"""AngelSlim 0.5: ``rows_*/data_*.ckpt``."""

from __future__ import annotations

from sglang_eagle3_probe.offline.comparing.training_states.record import Record, token_ids
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, part, sample

NAME = "AngelSlim"


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """``hidden_states`` [1, S, nH] are the aux states, ``target_hiddens`` the last one."""
    if "target_hiddens" not in record or "hidden_states" not in record:
        return None
    return sample(
        label,
        NAME,
        "hidden_states (here the aux states) beside target_hiddens (the last state)",
        token_ids(record, ("input_ids",), label),
        part(record["hidden_states"], "hidden_states", label, hidden),
        part(record["target_hiddens"], "target_hiddens", label, hidden),
        last_form="post-norm",
    )
