"""How well a draft predicts its target from each combination of boundaries.

Letters as in ``reference_draft``. A score is a log-likelihood (nats), so higher is better, and 0
would be certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sglang_eagle3_probe.offline.drafts.draft_weights import DraftWeights, apply
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.trained_layers.layer_labels import Labels, LabelSet
from sglang_eagle3_probe.offline.trained_layers.layer_rows import LayerRows, Stretch
from sglang_eagle3_probe.offline.trained_layers.slot_parts import KeptParts, SlotParts

WINDOW = 64
"""Rows of a stretch that are searched on."""
SEARCH_ROWS = 256
QUICK_ROWS = 48
"""Rows scored in the search: all, and where there are many combinations."""
QUICK_HEAD = 2048
QUICK_LABELS = 8
"""Draft ids compared in the search, and labels kept a row."""
WIDE_BYTES = 1 << 32
"""Drafts that are larger in float32 are turned into it piece by piece, each time."""
CHUNK = 512
"""Rows whose logits over the whole draft vocabulary are held at once."""


class WideWeights(DraftWeights):
    """Turned into float32 once, where that fits; the search runs them a thousand times."""

    def get(self, name: str, *, required: bool = True) -> torch.Tensor | None:
        found = super().get(name, required=required)
        if found is None or not found.is_floating_point() or found.dtype == torch.float32:
            return found
        if 4 * sum(math.prod(shape) for shape in self.shapes.values()) > WIDE_BYTES:
            return found
        self._kept[name] = found.to(torch.float32)
        return self._kept[name]


class SteadyDraft(ReferenceDraft):
    """Embeds the same ids over and over without reading the table again."""

    def embed(self, ids: torch.Tensor, *, beyond: bool = False) -> torch.Tensor:
        kept: dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]]
        kept = self.__dict__.setdefault("_kept", {})
        # The ids are kept too, so that their address means them for good.
        if (id(ids), beyond) not in kept:
            kept[id(ids), beyond] = ids, super().embed(ids, beyond=beyond)
        return kept[id(ids), beyond][1]


@dataclass(frozen=True)
class Scores:
    """Of one combination on all usable rows: ``values`` [R] in nats, ``right`` bool [R] where the
    draft's first choice is the label with the greatest weight."""

    values: torch.Tensor
    right: torch.Tensor

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def accuracy(self) -> float:
        return float(self.right.to(torch.float32).mean())


@dataclass(frozen=True)
class _Window:
    stretch: Stretch
    parts: KeptParts
    quick: torch.Tensor
    """Rows scored quickly, ascending."""
    usable: torch.Tensor
    """Rows with a label, ascending."""
    places: torch.Tensor
    """[T, K] columns of the small head."""
    weights: torch.Tensor


class LayerScorer:
    """Scores combinations given as columns of the captured boundaries.

    Attributes:
        slots: aux slots. columns: captured boundaries.
        cluster: int64 [R], which rows of ``exact`` hang together: the request's number.
    """

    def __init__(self, draft: ReferenceDraft, rows: LayerRows, labels: LabelSet) -> None:
        weights = WideWeights(draft.weights.draft, draft.weights.target)
        self.draft = SteadyDraft(weights, draft.plan, torch.float32)
        self.rows, self.labels = rows, labels
        self.parts = SlotParts(self.draft, rows.info.hidden_width)
        self.slots, self.columns = self.parts.slots, len(rows.boundaries)
        self._head, self._windows = self._search_sample()
        self.search_rows = sum(len(window.stretch) for window in self._windows)
        self.request = torch.cat(
            [
                torch.full((int(found.usable.sum()),), stretch.request)
                for stretch, found in zip(rows.stretches, labels.labels, strict=True)
            ]
        )

    # -- in the search --------------------------------------------------------------------------

    def _search_sample(self) -> tuple[torch.Tensor, list[_Window]]:
        """Windows spread over the stretches that have labels, and a head of the ids they need."""
        pairs = [
            (stretch, found)
            for stretch, found in zip(self.rows.stretches, self.labels.labels, strict=True)
            if bool(found.usable.any())
        ]
        count = max(1, SEARCH_ROWS // WINDOW)
        step = max(1, len(pairs) // count)
        cut: list[tuple[Stretch, Labels]] = []
        left = SEARCH_ROWS
        for stretch, found in [*pairs[::step], *(p for i, p in enumerate(pairs) if i % step)]:
            size = min(WINDOW if len(pairs) > 1 else SEARCH_ROWS, len(stretch), left)
            if size < 1:
                break
            # The window that ends at the last labelled row: answers come after prompts.
            stop = int(found.usable.nonzero().max()) + 1
            start = max(0, stop - size)
            part = slice(start, stop)
            cut.append(
                (
                    stretch.part(start, stop),
                    Labels(found.draft_ids[part], found.weights[part], found.usable[part]),
                )
            )
            left -= stop - start
        head = self.draft.head()
        needed = torch.cat([found.draft_ids[:, :QUICK_LABELS].flatten() for _, found in cut])
        spread = torch.linspace(0, len(head) - 1, min(QUICK_HEAD, len(head))).long()
        ids = torch.unique(torch.cat([needed, spread]))
        place = torch.zeros(len(head), dtype=torch.int64)
        place[ids] = torch.arange(len(ids))
        windows = []
        for stretch, found in cut:
            usable = found.usable.nonzero().flatten()
            share = max(1, round(len(usable) * QUICK_ROWS / SEARCH_ROWS))
            quick = usable[torch.linspace(len(usable) // 4, len(usable) - 1, share).long()]
            weights = found.weights[:, :QUICK_LABELS]
            windows.append(
                _Window(
                    stretch,
                    KeptParts(self.parts, stretch.states),
                    torch.unique(quick),
                    usable,
                    place[found.draft_ids[:, :QUICK_LABELS]],
                    weights / weights.sum(-1, keepdim=True).clamp(min=1e-9),
                )
            )
        return head[ids].to(torch.float32), windows

    def search_score(self, columns: Sequence[int], *, quick: bool) -> float:
        """Mean score on the windows, over a part of the draft vocabulary: to order combinations."""
        total, count = 0.0, 0
        for window in self._windows:
            rows = window.quick if quick else window.usable
            features = window.parts.features(columns)
            stretch = window.stretch
            output, _ = self.draft.begin(stretch.next_ids, features, stretch.positions, rows)
            logs = (output.normed @ self._head.T).log_softmax(-1)
            picked = logs.gather(-1, window.places[rows]) * window.weights[rows]
            total += float(picked.sum())
            count += len(rows)
        return total / count

    # -- exactly --------------------------------------------------------------------------------

    def exact(self, columns: Sequence[int], *, shuffled: bool = False) -> Scores:
        """Scores of all usable rows over the whole draft vocabulary.

        Args:
            shuffled: give each row another row's states, to see what the states are worth.
        """
        values, right = [], []
        for stretch, found in zip(self.rows.stretches, self.labels.labels, strict=True):
            rows = found.usable.nonzero().flatten()
            if not len(rows):
                continue
            states = stretch.states[:, list(columns)]
            if shuffled:
                states = states.roll(len(stretch) // 2, dims=0)
            features = self.parts.features(states, range(self.slots))
            output, _ = self.draft.begin(stretch.next_ids, features, stretch.positions, rows)
            ids, weights = found.draft_ids[rows], found.weights[rows]
            top = ids.gather(-1, weights.argmax(-1, keepdim=True))[:, 0]
            for start in range(0, len(rows), CHUNK):
                part = slice(start, start + CHUNK)
                logits = apply(output.normed[part], self.draft.head())
                picked = logits.gather(-1, ids[part]) - logits.logsumexp(-1, keepdim=True)
                values.append((picked * weights[part]).sum(-1))
                right.append(logits.argmax(-1) == top[part])
        return Scores(torch.cat(values), torch.cat(right))

    def unigram(self) -> torch.Tensor:
        """Scores [R] of the best guess that knows no text: how often the target says each token.

        Counted on the same rows, so that it flatters the guess, not the draft.
        """
        size = len(self.draft.head())
        counts = torch.full((size,), 0.5 / size)
        for found in self.labels.labels:
            counts.index_add_(0, found.draft_ids.flatten(), found.weights.flatten())
        logs = (counts / counts.sum()).log()
        return torch.cat(
            [
                (logs[found.draft_ids] * found.weights).sum(-1)[found.usable]
                for found in self.labels.labels
            ]
        )
