"""NeMo Automodel's cache, format version 2: ``manifest.json`` and ``shard-*.safetensors``.

``input_ids`` are stored shifted left by one, ``aux_hidden_states`` are not (read at 36044ad).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, int_list
from sglang_eagle3_probe.checkpoint.files import CONFIG_LIMIT, read_object, shown
from sglang_eagle3_probe.offline.comparing.training_states.record import Stored, from_safetensors
from sglang_eagle3_probe.offline.comparing.training_states.sample import Part, Sample, sample

NAME = "NeMo Automodel cache"
MANIFEST = "manifest.json"
SHARDS = "shard-*.safetensors"


def is_cache(folder: Path) -> bool:
    """Whether a folder is such a cache."""
    return (folder / MANIFEST).is_file() and next(folder.glob(SHARDS), None) is not None


@dataclass(frozen=True)
class _Shard:
    ids: torch.Tensor
    mask: torch.Tensor
    aux: Stored


def read(folder: Path, hidden: int) -> Iterator[Sample]:
    """Every sequence of every shard.

    Raises:
        CheckpointError: the manifest or a shard is not as expected.
    """
    manifest = read_object(folder / MANIFEST, CONFIG_LIMIT)
    version = manifest.get("format_version")
    output_ids = int_list(manifest.get("aux_layer_ids"))
    claimed = tuple(o + 1 for o in output_ids) if output_ids else None
    why = f"manifest.json with format_version {shown(version)}; ids shifted left by one"
    for path in sorted(folder.glob(SHARDS)):
        shard = _shard(path, hidden)
        for row in range(len(shard.ids)):
            # Padding stands at the end; the last token's own id was shifted out.
            length = int(shard.mask[row].to(torch.bool).sum())
            yield sample(
                f"{path} [{row}]",
                NAME,
                why,
                shard.ids[row, :length],
                _part(shard, row, length, hidden),
                None,
                ids_ahead=1,
                claimed=claimed,
            )


def _part(shard: _Shard, row: int, length: int, hidden: int) -> Part:
    slots = shard.aux.shape[2] // hidden
    return Part(
        length,
        slots,
        lambda: shard.aux.load()[row, :length].reshape(length, slots, hidden).clone(),
    )


def _shard(path: Path, hidden: int) -> _Shard:
    tensors, _metadata = from_safetensors(path)
    ids, aux = tensors.get("input_ids"), tensors.get("aux_hidden_states")
    mask = tensors.get("attention_mask")
    if not isinstance(ids, Stored) or not isinstance(aux, Stored):
        raise CheckpointError(
            f"{shown(path)} has no input_ids or no aux_hidden_states, expected a shard of NeMo's "
            "cache. Fix: build the cache again."
        )
    wrong = (
        len(ids.shape) != 2
        or not ids.whole
        or len(aux.shape) != 3
        or not aux.floating
        or aux.shape[:2] != ids.shape
        or not aux.shape[2]
        or aux.shape[2] % hidden
        or (isinstance(mask, Stored) and mask.shape != ids.shape)
    )
    if wrong:
        raise CheckpointError(
            f"{shown(path)}: input_ids {list(ids.shape[:8])} and aux_hidden_states "
            f"{list(aux.shape[:8])} do not go together with a hidden size of {hidden}. Fix: give "
            "the cache of the same target."
        )
    values = ids.load().to(torch.int64)
    kept = mask.load() if isinstance(mask, Stored) else torch.ones_like(values)
    return _Shard(values, kept, aux)
