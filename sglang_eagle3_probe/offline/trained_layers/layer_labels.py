"""What the target would say after each row, as weights over draft ids.

The sharpest statistic that captures allow: with the target's head, its probabilities over the draft
vocabulary (what trainers take as labels); without, the one token that it chose.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.drafts.draft_weights import HEADS, apply
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.trained_layers.layer_rows import LayerRows, Stretch

BEST = 64
"""Tokens of the target's distribution that are kept a row."""
CHUNK = 256
"""Rows whose target logits are held at once."""


@dataclass(frozen=True)
class Labels:
    """Of one stretch: ``draft_ids`` int64 [T, K], ``weights`` [T, K] that sum to 1 in a row, and
    ``usable`` bool [T]; the others have weights of 0."""

    draft_ids: torch.Tensor
    weights: torch.Tensor
    usable: torch.Tensor


@dataclass(frozen=True)
class LabelSet:
    """One entry a stretch, and what the labels were taken from."""

    labels: tuple[Labels, ...]
    source: str
    statistic: str


def label(rows: LayerRows, draft: ReferenceDraft) -> LabelSet:
    """Labels of every stretch.

    Raises:
        CheckpointError: no row has a label in the draft vocabulary.
    """
    head = _target_head(rows, draft)
    vocabulary = draft.target_ids(torch.arange(draft.head().shape[0]))
    if head is not None:
        kept = head[vocabulary]
        labels = tuple(_soft(stretch, kept) for stretch in rows.stretches)
        source = "final_norm of the capture and the head of the target"
        statistic = (
            f"mean log-likelihood of the target's {min(BEST, len(vocabulary))} best tokens of "
            "the draft vocabulary, weighted by the target's probabilities"
        )
    else:
        place = torch.full((int(vocabulary.max()) + 1,), -1, dtype=torch.int64)
        place[vocabulary] = torch.arange(len(vocabulary))
        labels = tuple(_hard(stretch, place) for stretch in rows.stretches)
        source = (
            "the tokens of the answers, chosen by the target (greedy)"
            if rows.info.greedy
            else f"the tokens of the answers, sampled at temperature {rows.info.temperature:g}"
        )
        statistic = "mean log-likelihood of the target's token, over the draft vocabulary"
    if not any(bool(found.usable.any()) for found in labels):
        raise CheckpointError(
            "no row says what the target would have chosen: the captures hold no answers. "
            "Fix: capture requests with answers, or name the target's folder with --target."
        )
    return LabelSet(labels, source, statistic)


def _target_head(rows: LayerRows, draft: ReferenceDraft) -> torch.Tensor | None:
    """[V, H], or None when it cannot be used: no folder, no state to put it on."""
    folder = draft.weights.target
    if folder is None or any(stretch.final is None for stretch in rows.stretches):
        return None
    if not any(name in folder for name in HEADS):
        return None
    found = draft.weights.target_tensor(HEADS, "head")
    return found if found.shape[1] == rows.info.hidden_width else None


def _soft(stretch: Stretch, head: torch.Tensor) -> Labels:
    assert stretch.final is not None
    count = min(BEST, head.shape[0])
    ids, weights = [], []
    for part in stretch.final.to(torch.float32).split(CHUNK):
        best = apply(part, head).topk(count, dim=-1)
        ids.append(best.indices)
        weights.append(best.values.softmax(-1))
    usable = torch.ones(len(stretch), dtype=torch.bool)
    return Labels(torch.cat(ids), torch.cat(weights), usable)


def _hard(stretch: Stretch, place: torch.Tensor) -> Labels:
    chosen = stretch.choice_ids
    inside = (chosen >= 0) & (chosen < len(place))
    ids = torch.where(inside, place[chosen.clamp(0, len(place) - 1)], -1)
    usable = ids >= 0
    return Labels(ids.clamp(min=0)[:, None], usable[:, None].to(torch.float32), usable)
