"""A draft's tensors, and those of its target that SGLang gives it, kept as stored.

Only what is asked for is read. Of an embedding only the rows that occur are, since a large one is
most of a draft's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, CheckpointFacts
from sglang_eagle3_probe.checkpoint.files import inside, shown
from sglang_eagle3_probe.checkpoint.reader import located, read_checkpoint
from sglang_eagle3_probe.checkpoint.safetensors_file import Entry, read_header
from sglang_eagle3_probe.offline.drafts.draft_plan import plain_name
from sglang_eagle3_probe.offline.drafts.together import multiply
from sglang_eagle3_probe.offline.stored_tensors import load_rows, load_tensor

EMBEDDINGS = (
    "model.embed_tokens.weight",
    "embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "thinker.model.embed_tokens.weight",
    "model.word_embeddings.weight",
)
HEADS = ("lm_head.weight", "language_model.lm_head.weight", "thinker.lm_head.weight")
NORMS = (
    "model.norm.weight",
    "norm.weight",
    "language_model.model.norm.weight",
    "model.language_model.norm.weight",
    "thinker.model.norm.weight",
)
"""Where targets keep them, plain and multimodal ones."""


class Folder:
    """The safetensors of one checkpoint folder, opened tensor by tensor.

    Raises:
        CheckpointError: the folder cannot be read or has no weights.
    """

    def __init__(self, given: Path | str) -> None:
        self.facts: CheckpointFacts = read_checkpoint(str(given))
        if self.facts.tensors is None:
            raise CheckpointError(
                f"{shown(given)} has no safetensors weights. Fix: give the folder that holds them."
            )
        self.root = located(str(given))
        self._headers: dict[str, dict[str, Entry]] = {}

    def __contains__(self, name: str) -> bool:
        return name in (self.facts.tensors or {})

    def entry(self, name: str) -> tuple[Path, Entry]:
        """File and place of a tensor by its stored name."""
        tensors = self.facts.tensors or {}
        if name not in tensors:
            raise CheckpointError(
                f"{shown(self.facts.path)} has no tensor {shown(name)}. Fix: give the folder with "
                "all weights."
            )
        file = tensors[name].file
        path = inside(self.root, self.root / file)
        if file not in self._headers:
            self._headers[file] = read_header(path, file)
        return path, self._headers[file][name]

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor by its stored name."""
        path, entry = self.entry(name)
        return load_tensor(path, name, entry)

    def rows(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Some rows of a matrix, ascending ids ``rows`` [n] -> [n, width]."""
        path, entry = self.entry(name)
        return load_rows(path, name, entry, rows)

    def first_of(self, names: tuple[str, ...], what: str) -> str:
        """The first of these names that is there.

        Raises:
            CheckpointError: none is.
        """
        for name in names:
            if name in self:
                return name
        raise CheckpointError(
            f"{shown(self.facts.path)} has no {what} ({names[0]}, ...). Fix: give the target's "
            "folder with all weights."
        )


@dataclass
class DraftWeights:
    """Plain name -> tensor, read at its first use and kept in the dtype it is stored in."""

    draft: Folder
    target: Folder | None
    stored: dict[str, str] = field(init=False)
    _kept: dict[str, torch.Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.stored = {plain_name(name): name for name in self.draft.facts.tensors or {}}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Plain name -> shape."""
        tensors = self.draft.facts.tensors or {}
        return {plain: tensors[name].shape for plain, name in self.stored.items()}

    def get(self, name: str, *, required: bool = True) -> torch.Tensor | None:
        """A tensor of the draft; None: not stored and not required."""
        if name not in self._kept:
            if name not in self.stored:
                if required:
                    raise CheckpointError(
                        f"the draft in {shown(self.draft.facts.path)} has no {shown(name)}, so "
                        "what it computes is not defined. Fix: export the draft again."
                    )
                return None
            self._kept[name] = self.draft.tensor(self.stored[name])
        return self._kept[name]

    def norm(self, name: str, size: int) -> torch.Tensor:
        """A norm's weight; ones where it is not stored, which is what SGLang then computes with."""
        found = self.get(name, required=False)
        if found is None:
            found = self._kept[name] = torch.ones(size)
        if found.shape != (size,):
            raise CheckpointError(
                f"{shown(name)} of the draft has shape {list(found.shape)}, expected [{size}]. "
                "Fix: correct the sizes in the draft's config.json."
            )
        return found

    def of_target(self, names: tuple[str, ...], what: str) -> tuple[Folder, str]:
        """Where a tensor of the target stands.

        Raises:
            CheckpointError: no target was given, or it lacks the tensor.
        """
        if self.target is None:
            raise CheckpointError(
                f"the draft takes its {what} from the target, whose folder was not given. "
                "Fix: name it with --target."
            )
        return self.target, self.target.first_of(names, what)

    def target_tensor(self, names: tuple[str, ...], what: str) -> torch.Tensor:
        """A whole tensor of the target, kept."""
        key = f"target {names[0]}"
        if key not in self._kept:
            folder, name = self.of_target(names, what)
            self._kept[key] = folder.tensor(name)
        return self._kept[key]


def apply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x`` [T, in] times ``weight`` [out, in] transposed, in ``x``'s dtype."""
    result = multiply(x, weight)
    return result if bias is None else result + bias.to(x.dtype)
