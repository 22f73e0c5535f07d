"""Watches a checkpoint being loaded: which names are taken, which parameters stay unfilled.

SGLang's draft ``load_weights`` drops names and leaves parameters without a word (llama_eagle3, all
releases). Repeating its name rules here would repeat its mistakes, so the load itself is watched:
a few elements of every parameter are replaced by NaN beforehand, and whatever the loader writes
overwrites them. Elements still NaN afterwards get their values back, so an unfilled parameter
keeps exactly the initial value it has without the probe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

SAMPLES_PER_PARAMETER = 509
"""Evenly spread over the flat parameter, so that each shard of a fused one gets some."""


@dataclass
class _Marked:
    """One parameter's sampled elements."""

    flat: Any
    index: Any
    saved: Any
    open_count: int


@dataclass
class LoadReport:
    """What a load did.

    Attributes:
        names: every checkpoint name that was offered, in order.
        not_taken: names whose arrival changed no parameter.
        not_filled: parameters of which nothing was written.
        partly_filled: parameters of which some shard was written and some not.
        unwatched: parameters that cannot hold a NaN (integers, 8-bit floats); nothing is said of
            them.
    """

    names: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)
    not_filled: list[str] = field(default_factory=list)
    partly_filled: list[str] = field(default_factory=list)
    unwatched: list[str] = field(default_factory=list)


class LoadWatch:
    """Marks a module's parameters, follows the weights, restores the marks.

    Runs at load time only: it synchronises the device once per checkpoint name.
    """

    def __init__(self, named_parameters: Iterable[tuple[str, Any]]) -> None:
        self.report = LoadReport()
        self._marked: dict[str, _Marked] = {}
        self._restored = False
        seen: set[int] = set()
        try:
            for name, parameter in named_parameters:
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    self._mark(name, parameter)
        except Exception:
            self.restore()
            raise

    def _mark(self, name: str, parameter: Any) -> None:
        import torch

        data = parameter.data
        if data.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            self.report.unwatched.append(name)
            return
        if not data.is_contiguous() or data.numel() == 0 or data.is_meta:
            self.report.unwatched.append(name)
            return
        flat = data.view(-1)
        count = min(SAMPLES_PER_PARAMETER, flat.numel())
        # Integer arithmetic: float32 positions would repeat and overrun in a large embedding.
        index = torch.arange(count, device=flat.device, dtype=torch.int64) * flat.numel() // count
        saved = flat[index].clone()
        self._marked[name] = _Marked(flat, index, saved, count)
        flat[index] = float("nan")

    def follow(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Pass the weights on, noting after each whether anything was written.

        The loader asks for the next weight when it is done with the one before. A failure of the
        watching itself ends the watching, never the load.
        """
        for name, tensor in weights:
            self.report.names.append(name)
            yield name, tensor
            try:
                taken = self._progress()
            except Exception:
                taken = True
            if not taken:
                self.report.not_taken.append(name)

    def _progress(self) -> bool:
        """Whether marks were overwritten since the last call."""
        progress = False
        for marked in self._marked.values():
            if marked.open_count:
                left = int(marked.flat[marked.index].isnan().sum())
                progress = progress or left < marked.open_count
                marked.open_count = left
        return progress

    def finish(self) -> LoadReport:
        """Restore what is left of the marks and say what was filled."""
        self._progress()
        for name, marked in self._marked.items():
            if marked.open_count == marked.index.numel():
                self.report.not_filled.append(name)
            elif marked.open_count:
                self.report.partly_filled.append(name)
        self.restore()
        return self.report

    def restore(self) -> None:
        """Give every element that is still marked its value back. Safe to call twice."""
        if self._restored:
            return
        self._restored = True
        for marked in self._marked.values():
            left = marked.flat[marked.index].isnan()
            marked.flat[marked.index[left]] = marked.saved[left]
