"""Finds the saved sequences below a path and says who wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.offline.comparing.training_states import (
    angelslim,
    eagle_style,
    modelopt,
    nemo,
    other_capture,
    plain,
    specforge,
    speculators,
    tensorrt_llm,
)
from sglang_eagle3_probe.offline.comparing.training_states.gzip_file import unpacked
from sglang_eagle3_probe.offline.comparing.training_states.record import (
    Record,
    Value,
    from_safetensors,
)
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, States
from sglang_eagle3_probe.offline.comparing.training_states.torch_file import read_torch_file

Reader = Callable[[Record, str, int], "Sample | None"]

READERS: tuple[Reader, ...] = (
    specforge.read,
    tensorrt_llm.read,
    angelslim.read,
    modelopt.read,
    speculators.read,
    speculators.read_old,
    eagle_style.read,
    plain.read,
)
"""In this order: the first whose names fit, the most telling names first."""

TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
SUFFIXES = (*TORCH_SUFFIXES, *(f"{s}.gz" for s in TORCH_SUFFIXES), ".safetensors")
MOST_FILES = 20_000
DEEPEST = 3
"""Folders below the one given; SpecForge and AngelSlim nest once (rows_*/)."""

NO_DISK = (
    "TorchSpec keeps its states in memory (Mooncake) and EAGLE's own trainer computes them as it "
    "goes: neither leaves files"
)


@dataclass
class Search:
    """What was found, and what could not be read."""

    source: Path
    hidden: int
    """The capture's hidden size: widths tell the layouts apart."""
    files: int = 0
    unread: list[str] = field(default_factory=list)
    """One message a file."""
    cut: bool = False
    """There are more than ``MOST_FILES`` files; the rest was not looked at."""

    def samples(self) -> Iterator[Sample]:
        """Every sequence, ids read and states not yet.

        Raises:
            CheckpointError: nothing is there, or nothing that is there can be read.
        """
        if other_capture.is_capture(self.source):
            yield from other_capture.read(self.source)
            return
        if self.source.name == nemo.MANIFEST and nemo.is_cache(self.source.parent):
            self.source = self.source.parent
        if self.source.is_dir() and nemo.is_cache(self.source):
            yield from nemo.read(self.source, self.hidden)
            return
        given_as_file = not self.source.is_dir()
        found = 0
        for path in self._paths():
            self.files += 1
            try:
                for sample in read_file(path, self.hidden):
                    found += 1
                    yield sample
            except CheckpointError as error:
                if given_as_file:
                    raise
                self.unread.append(str(error))
        if not self.files:
            raise CheckpointError(
                f"{shown(self.source)} has no files of training states ({', '.join(SUFFIXES)}). "
                f"{NO_DISK}. Fix: name the folder that the trainer's data step wrote."
            )
        if not found:
            raise CheckpointError(
                f"none of the {self.files} files in {shown(self.source)} could be read; the first: "
                f"{self.unread[0]}"
            )

    def _paths(self) -> Iterator[Path]:
        if not self.source.is_dir():
            yield self.source
            return
        candidates = (
            path
            for path in _walk(self.source, 0)
            if path.name.endswith(SUFFIXES) and path.name != "target_embeddings.safetensors"
        )
        yield from islice(candidates, MOST_FILES)
        self.cut = next(candidates, None) is not None


def read_file(path: Path, hidden: int) -> list[Sample]:
    """The sequences of one file, ids read and states not yet.

    Raises:
        CheckpointError: it cannot be read, or holds no states of this hidden size.
    """
    if not path.exists():
        raise CheckpointError(
            f"{shown(path)} does not exist. Fix: name a file of training states, or their folder."
        )
    if not path.name.endswith(SUFFIXES):
        raise CheckpointError(
            f"{shown(path)} is none of {', '.join(SUFFIXES)}. {NO_DISK}. Fix: name a file of "
            "training states, or their folder."
        )
    if path.name.endswith(".gz"):
        with unpacked(path) as copy:
            found = _samples(read_torch_file(copy, label=str(path)), str(path), hidden)
        return [_unpacked_again(sample, i, path, hidden) for i, sample in enumerate(found)]
    if path.name.endswith(".safetensors"):
        return _samples(from_safetensors(path)[0], str(path), hidden)
    return _samples(read_torch_file(path), str(path), hidden)


def _samples(value: Value, label: str, hidden: int) -> list[Sample]:
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        return [
            _one(entry, f"{label} [{i}]", hidden)
            for i, entry in enumerate(value)
            if isinstance(entry, dict)
        ]
    if isinstance(value, dict):
        return [_one(value, label, hidden)]
    raise CheckpointError(
        f"{shown(label)} holds a {type(value).__name__}, expected a dict of tensors (or a list of "
        "such dicts). Fix: save token ids and states in one dict."
    )


def _one(record: Record, label: str, hidden: int) -> Sample:
    for reader in READERS:
        found = reader(record, label, hidden)
        if found is not None:
            return found
    names = ", ".join(shown(name) for name in list(record)[:8]) or "nothing"
    raise CheckpointError(
        f"{shown(label)} holds {names}: no known trainer's names, and no "
        f"{' / '.join(plain.IDS[:3])} beside {' / '.join(plain.AUX[1:4])}. Fix: rename them so."
    )


def _unpacked_again(sample: Sample, index: int, path: Path, hidden: int) -> Sample:
    """The copy is gone by the time the states are wanted, so it is made again."""

    def states() -> States:
        with unpacked(path) as copy:
            again = _samples(read_torch_file(copy, label=str(path)), str(path), hidden)
            return again[index].states()

    return replace(sample, states=states)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Files in the order of the numbers in their names; links to folders are not followed."""
    try:
        inside = sorted(folder.iterdir(), key=_order)
    except OSError:
        return
    for path in inside:
        if path.is_dir():
            if depth < DEEPEST and not path.is_symlink():
                yield from _walk(path, depth + 1)
        else:
            yield path


def _order(path: Path) -> tuple[list[int], str]:
    return [int(n[:18]) for n in re.findall(r"\d+", path.name)], path.name
