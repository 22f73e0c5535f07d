"""What the draft's folder says: ids in every place a trainer may have put them, and trainer notes.

SGLang reads the ids from ``eagle_config.eagle_aux_hidden_state_layer_ids`` alone (0.5.9 to 0.5.23,
``_resolve_eagle_aux_hidden_state``); other places are ignored without a word, which is why they
are collected here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IGNORED_KEYS = (
    "eagle_aux_hidden_state_layer_ids",
    "aux_hidden_states_layer_ids",
    "eagle_config.layer_ids",
    "eagle_config.aux_hidden_state_layer_ids",
    "speculators_config.eagle_aux_hidden_state_layer_ids",
)
"""speculators and vLLM; AngelSlim; vLLM's V2 runner; hand-written variants."""

TRAINER_FILE = "trainer_accuracy.json"


@dataclass(frozen=True)
class DraftFiles:
    """Facts from the draft's folder; empty where a file is missing."""

    config: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """First entry of ``architectures``, or an empty text."""
        names = self.config.get("architectures") or [""]
        return str(names[0])

    @property
    def ignored_ids(self) -> dict[str, list[int]]:
        """Lists at places that SGLang does not read: key -> ids."""
        found = {key: _id_list(self.config, key) for key in IGNORED_KEYS}
        return {key: list(ids) for key, ids in found.items() if ids is not None}

    @property
    def trained_output_ids(self) -> list[int] | None:
        """``trained_on_output_ids`` from the trainer's notes: output ids in training order."""
        ids = _id_list(self.trainer, "trained_on_output_ids")
        return list(ids) if ids is not None else None


def read_draft_files(path: str) -> DraftFiles:
    """Read a draft's ``config.json`` and trainer notes from a folder or the local hub cache.

    Never downloads. Unreadable files count as missing: SGLang itself reports those.
    """
    return DraftFiles(
        config=_read_json(path, "config.json"), trainer=_read_json(path, TRAINER_FILE)
    )


def _read_json(path: str, name: str) -> dict[str, Any]:
    file = Path(path) / name
    if not file.is_file():
        cached = _from_hub_cache(path, name)
        if cached is None:
            return {}
        file = cached
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _from_hub_cache(repo: str, name: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(repo, name)
    except Exception:
        return None
    return Path(found) if isinstance(found, str) else None


def _id_list(source: dict[str, Any], dotted: str) -> tuple[int, ...] | None:
    value: Any = source
    for key in dotted.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        return tuple(value)
    return None
