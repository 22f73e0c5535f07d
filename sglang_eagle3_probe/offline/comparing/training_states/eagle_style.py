"""Files with ``input_ids`` and ``hidden_state``: told apart by the width.

speculators' research code (aux states and ``target``), BaldEagle (fused: [3, S, H]), and EAGLE-1
style data (the last state alone).
"""

from __future__ import annotations

from sglang_eagle3_probe.offline.comparing.training_states.record import Record, Stored, token_ids
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, part, sample

RESEARCH = "speculators research code"
BALDEAGLE = "BaldEagle"
EAGLE = "EAGLE-1 style"


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """``hidden_state`` means the aux states where it is n x H wide, or 3-D with several layers."""
    value = record.get("hidden_state")
    if "input_ids" not in record or not isinstance(value, Stored):
        return None
    ids = token_ids(record, ("input_ids",), label)
    found = part(value, "hidden_state", label, hidden)
    if "target" in record:
        why = "hidden_state (here the aux states) beside target (the last state)"
        last = part(record["target"], "target", label, hidden)
        if found.slots > 1:
            return sample(label, RESEARCH, why, ids, found, last)
    if found.slots > 1:
        why = f"hidden_state alone, {found.slots} layers"
        return sample(label, BALDEAGLE, why, ids, found, None)
    why = "hidden_state alone, one state wide: the last state, no aux states"
    return sample(label, EAGLE, why, ids, None, found)
