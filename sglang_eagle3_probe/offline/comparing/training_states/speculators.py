"""speculators (0.3 on) and vLLM's ``extract_hidden_states``: all states stacked under one name."""

from __future__ import annotations

import re
from pathlib import Path

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, int_list
from sglang_eagle3_probe.checkpoint.files import CONFIG_LIMIT, read_object
from sglang_eagle3_probe.offline.comparing.training_states.record import Record, Stored, token_ids
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, part, sample

NAME = "speculators"
VLLM = "vLLM extract_hidden_states"
OWN_NAME = re.compile(r"hs_\d+\.safetensors")
DATA_CONFIG = "data_config.json"


def read(record: Record, label: str, hidden: int) -> Sample | None:
    """``token_ids`` and 3-D ``hidden_states`` [S, n(+1), H], in the order of the list of layers.

    speculators (0.5 on) appends the last state before the norm; vLLM has it only if it was listed.
    """
    stacked = record.get("hidden_states")
    if "token_ids" not in record or not isinstance(stacked, Stored) or len(stacked.shape) != 3:
        return None
    own = OWN_NAME.fullmatch(Path(label).name) is not None
    return sample(
        label,
        f"{NAME} 0.5 or later" if own else VLLM,
        "token_ids and 3-D hidden_states (all layers stacked)"
        + (" in a file named hs_<number>" if own else ""),
        token_ids(record, ("token_ids",), label),
        part(stacked, "hidden_states", label, hidden),
        None,
        last_form="pre-norm",
        stacked=True,
    )


def read_old(record: Record, label: str, hidden: int) -> Sample | None:
    """speculators 0.3 and 0.4: ``hidden_states`` is a list of tensors [S, H].

    The ids in ``data_config.json`` beside the file are output ids.
    """
    listed = record.get("hidden_states")
    if "input_ids" not in record or not isinstance(listed, list):
        return None
    claimed = _claimed(Path(label).parent, len(listed))
    return sample(
        label,
        f"{NAME} 0.3 or 0.4",
        "hidden_states is a list of one tensor a layer",
        token_ids(record, ("input_ids",), label),
        part(listed, "hidden_states", label, hidden),
        None,
        claimed=claimed,
        last_form="pre-norm",
        stacked=True,
    )


def _claimed(folder: Path, count: int) -> tuple[int, ...] | None:
    """Boundaries by ``data_config.json``, which is searched for a list of ``count`` layer ids."""
    path = folder / DATA_CONFIG
    if not path.is_file():
        return None
    try:
        waiting: list[object] = [read_object(path, CONFIG_LIMIT)]
    except CheckpointError:
        return None
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            for key, value in found.items():
                ids = int_list(value)
                if "layer" in str(key) and ids is not None and len(ids) == count:
                    return tuple(o + 1 for o in ids)
                waiting.append(value)
    return None
