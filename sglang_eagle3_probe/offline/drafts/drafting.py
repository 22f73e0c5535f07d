"""Drafting chains (topk 1) behind rows of a sequence, as SGLang's workers do it.

Source: ``speculative/eagle_worker_v2.py`` (``draft_forward``) of 0.5.23. Letters as in
``reference_draft``, and R rounds. Trees: ``tree_drafting``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_eagle3_probe.offline.drafts.reference_draft import (
    LOGITS,
    Best,
    Context,
    Output,
    ReferenceDraft,
)


@dataclass(frozen=True)
class ChainStep:
    """One step of R chains: the best ids [R, 1], the recurrent state [R, G] behind them, and what
    the head read [R, G]."""

    best: Best
    target_ids: torch.Tensor
    hidden: torch.Tensor
    normed: torch.Tensor


def chain(
    draft: ReferenceDraft,
    context: Context,
    first: Output,
    last: torch.Tensor,
    positions: torch.Tensor,
    steps: int,
    forced: torch.Tensor | None = None,
) -> list[ChainStep]:
    """Drafts behind rows of a sequence.

    Args:
        context: of the whole sequence, from ``begin``.
        first: output of ``begin`` for the rows ``last``.
        last: int64 [R], the rows that the rounds start at.
        positions: int64 [R], of these rows.
        forced: int64 [R, steps - 1] target ids that the steps from 1 on read, such as what an
            engine drafted; None: each reads the choice of the step before (free-running).
    """
    found: list[ChainStep] = []
    output = first
    earlier: list[Context] = []
    for step in range(steps):
        if step:
            ids = found[-1].target_ids if forced is None else forced[:, step - 1]
            output = draft.follow(context, last, ids, output.hidden, positions + step, earlier)
            earlier.append(output.own)
        best = draft.best(output.normed)
        ids = draft.target_ids(best.draft_ids[:, 0])
        found.append(ChainStep(best, ids, output.hidden, output.normed))
    return found


def ranks(
    draft: ReferenceDraft, normed: torch.Tensor, target_ids: torch.Tensor, rounding: float
) -> torch.Tensor:
    """Rank from 1 of a token in the draft's distribution of each row, and how far rounding may move
    it: int64 [R, 3], rank, lowest, highest; zeros where the draft vocabulary lacks the token.

    Args:
        normed: [R, G], as an ``Output`` has them. target_ids: int64 [R].
        rounding: two logits nearer to each other than so much of the larger may swap.
    """
    head = draft.head()
    of_draft = draft.target_ids(torch.arange(head.shape[0]))
    found = torch.zeros((len(target_ids), 3), dtype=torch.int64)
    chunk = max(1, LOGITS // head.shape[0])
    for start in range(0, len(target_ids), chunk):
        part = slice(start, start + chunk)
        logits = draft.logits(normed[part]).to(torch.float32)
        places = of_draft[None] == target_ids[part, None]
        wanted = logits.gather(1, places.int().argmax(1, keepdim=True))
        apart = logits - wanted
        near = rounding * torch.maximum(logits.abs(), wanted.abs())
        # The token itself is among the near ones, which makes up for counting from 1.
        counts = [1 + (apart > 0).sum(1), 1 + (apart > near).sum(1), (apart >= -near).sum(1)]
        found[part] = torch.stack(counts, 1) * places.any(1)[:, None]
    return found
