"""What a target's folder adds to a capture: embedding rows and the final norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, CheckpointFacts
from sglang_eagle3_probe.checkpoint.files import opened, read_exactly, shown
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.checkpoint.safetensors_file import Entry, read_header
from sglang_eagle3_probe.offline.comparing.pairs import Pairs
from sglang_eagle3_probe.offline.stored_tensors import TORCH_DTYPES, load_tensor

PREFIXES = ("model.", "", "language_model.model.", "model.language_model.", "language_model.")
EMBEDDING = "embed_tokens.weight"
NORM = "norm.weight"
EPSILON = 1e-6


@dataclass(frozen=True)
class TargetFolder:
    """A target's checkpoint on this machine."""

    facts: CheckpointFacts
    folder: Path

    def embedding_rows(self, ids: torch.Tensor) -> torch.Tensor | None:
        """[T, H], only those rows are read; None if the weights have no such table or rows."""
        place = self._entry(EMBEDDING)
        if place is None:
            return None
        path, name, entry = place
        dtype = TORCH_DTYPES.get(entry.info.dtype)
        if dtype is None or len(entry.info.shape) != 2 or bool((ids >= entry.info.shape[0]).any()):
            return None
        width = entry.info.shape[1] * dtype.itemsize
        rows = torch.empty(len(ids), entry.info.shape[1], dtype=dtype)
        seen: dict[int, torch.Tensor] = {}
        with opened(path) as (file, _size):
            for at, token in enumerate(ids.tolist()):
                if token not in seen:
                    data = bytearray(read_exactly(file, entry.start + token * width, width))
                    if len(data) < width:
                        raise CheckpointError(
                            f"{shown(path)} ends inside {shown(name)}. Fix: download it again."
                        )
                    seen[token] = torch.frombuffer(data, dtype=dtype)
                rows[at] = seen[token]
        return rows

    def final_norm_weight(self) -> torch.Tensor | None:
        """[H], or None."""
        place = self._entry(NORM)
        return load_tensor(*place) if place is not None else None

    def _entry(self, name: str) -> tuple[Path, str, Entry] | None:
        for prefix in PREFIXES:
            info = (self.facts.tensors or {}).get(prefix + name)
            if info is not None:
                path = self.folder / info.file
                return path, prefix + name, read_header(path, info.file)[prefix + name]
        return None


def open_target(place: str) -> TargetFolder:
    """A target by folder, or by its name in the local Hugging Face cache.

    Raises:
        CheckpointError: it cannot be read.
    """
    facts = read_checkpoint(place)
    folder = Path(facts.path)
    return TargetFolder(facts, folder if folder.is_dir() else folder.parent)


def with_target(pairs: Pairs, target: TargetFolder) -> Pairs:
    """The pairs with the target's embedding rows, and its final norm where it can be computed.

    Raises:
        CheckpointError: the target has another hidden size than the capture.
    """
    hidden = target.facts.integer("hidden_size")
    if hidden is not None and hidden != pairs.info.hidden_width:
        raise CheckpointError(
            f"{shown(target.facts.path)} has a hidden size of {hidden}, the capture one of "
            f"{pairs.info.hidden_width}. Fix: name the target that was served."
        )
    layers = target.facts.integer("num_hidden_layers") or pairs.info.num_layers
    last = pairs.boundary(layers)
    final = pairs.final_norm
    weight = target.final_norm_weight() if final is None and last is not None else None
    if weight is not None and last is not None and len(weight) == last.shape[1]:
        x = last.float()
        final = x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * weight.float()
    rows = target.embedding_rows(pairs.token_ids)
    if rows is not None and rows.shape[1] != pairs.info.hidden_width:
        rows = None
    return replace(pairs, embedding=rows, final_norm=final)
