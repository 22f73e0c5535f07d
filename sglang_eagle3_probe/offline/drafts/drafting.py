"""Drafting as SGLang's workers do it: a chain (topk 1) or a tree, behind rows of a sequence.

Source: ``speculative/eagle_worker_v2.py`` (``draft_forward``), ``spec_utils.select_top_k_tokens``
and ``eagle_utils.organize_draft_results`` of 0.5.23. Letters as in ``reference_draft``, and R
rounds, K topk, D nodes of a tree (``speculative_num_draft_tokens``, the root counted).
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


@dataclass(frozen=True)
class Tree:
    """R submitted trees, roots left out.

    Attributes:
        node_ids: int64 [R, D-1], target ids in SGLang's order.
        parents: int64 [R, D-1], index into the same row; -1: the root.
        step_ids: int64 [R, S, K], candidates kept at each step. step_scores: float32 [R, S, K].
        margins: float32 [R], the smallest log ratio between a score that was kept and one that was
            left out, at any step: how near the tree was to another, in units of logits.
        sizes: float32 [R], the largest logit seen, to judge rounding by.
    """

    node_ids: torch.Tensor
    parents: torch.Tensor
    step_ids: torch.Tensor
    step_scores: torch.Tensor
    margins: torch.Tensor
    sizes: torch.Tensor


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


def tree(
    draft: ReferenceDraft,
    context: Context,
    first: Output,
    last: torch.Tensor,
    positions: torch.Tensor,
    steps: int,
    topk: int,
    nodes: int,
    roots: torch.Tensor | None = None,
) -> Tree:
    """Free-running trees.

    A branch keeps its slot in the draft's KV cache when its parent changes, as in SGLang: it sees
    what the slot's earlier holders wrote.

    Args:
        nodes: D, root counted.
        roots: int64 [R], as an engine needs them that reads at each node its parent's token, not
            its own; None: it reads its own.
    """
    rounds = len(last)
    best = draft.best(first.normed, topk + 1)
    ids = draft.target_ids(best.draft_ids[:, :topk])
    scores = best.probabilities[:, :topk]
    margins, sizes = _margin(best.probabilities, topk), best.sizes
    hidden = first.hidden.repeat_interleave(topk, dim=0)
    all_scores, all_ids = [scores], [ids]
    kept_at: list[torch.Tensor] = []
    step_ids, step_scores = [ids], [scores]
    above = None if roots is None else roots[:, None].expand(-1, topk)
    behind = last.repeat_interleave(topk)
    at = positions.repeat_interleave(topk)
    earlier: list[Context] = []
    for step in range(1, steps):
        read = (ids if above is None else above).reshape(-1)
        output = draft.follow(context, behind, read, hidden, at + step, earlier)
        earlier.append(output.own)
        best = draft.best(output.normed, topk)
        spread = (scores[:, :, None] * best.probabilities.view(rounds, topk, topk)).flatten(1)
        candidates = draft.target_ids(best.draft_ids).view(rounds, topk * topk)
        top = spread.topk(topk, dim=-1)
        if above is not None:
            above = ids.gather(1, top.indices // topk)
        ids = candidates.gather(1, top.indices)
        offset = torch.arange(rounds)[:, None] * topk
        hidden = output.hidden[(top.indices // topk + offset).flatten()]
        scores = top.values
        margins = torch.minimum(margins, _margin(spread, topk))
        sizes = torch.maximum(sizes, best.sizes.view(rounds, topk).amax(1))
        all_scores.append(spread)
        all_ids.append(candidates)
        kept_at.append(top.indices + topk + topk * topk * (step - 1))
        step_ids.append(ids)
        step_scores.append(scores)
    flat_scores, flat_ids = torch.cat(all_scores, dim=1), torch.cat(all_ids, dim=1)
    count = min(nodes - 1, flat_scores.shape[1])
    chosen = flat_scores.topk(count, dim=-1).indices.sort(dim=-1).values
    return Tree(
        node_ids=flat_ids.gather(1, chosen),
        parents=_parents(chosen, kept_at, topk),
        step_ids=torch.stack(step_ids, dim=1),
        step_scores=torch.stack(step_scores, dim=1),
        margins=torch.minimum(margins, _margin(flat_scores, count)),
        sizes=sizes,
    )


def _margin(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Log of the worst kept score over the best one left out; infinite when none is."""
    if scores.shape[1] <= count:
        return torch.full((len(scores),), torch.inf)
    best = scores.topk(count + 1, dim=-1).values.clamp_min(1e-30)
    return (best[:, count - 1] / best[:, count]).log()


def paths(ids: torch.Tensor, parents: torch.Tensor) -> list[set[tuple[int, ...]]]:
    """Depth -> the paths of ids [D-1] with ``parents`` [D-1] (-1: the root) that end there."""
    found: list[tuple[int, ...]] = []
    depths: list[set[tuple[int, ...]]] = []
    for token, parent in zip(ids.tolist(), parents.tolist(), strict=True):
        path = (*(found[parent] if 0 <= parent < len(found) else ()), token)
        found.append(path)
        while len(depths) < len(path):
            depths.append(set())
        depths[len(path) - 1].add(path)
    return depths


def _parents(chosen: torch.Tensor, kept_at: list[torch.Tensor], topk: int) -> torch.Tensor:
    """Index of each chosen candidate's parent among the chosen; -1: the root.

    Candidate numbers count step 0's topk first, then topk * topk a step. A candidate of step s
    hangs below the kept candidate of step s - 1 in whose block it lies.
    """
    parents = torch.full_like(chosen, -1)
    for row in range(len(chosen)):
        place = {int(number): index for index, number in enumerate(chosen[row])}
        for index, number in enumerate(chosen[row].tolist()):
            if number < topk:
                continue
            step, within = divmod(number - topk, topk * topk)
            branch = within // topk
            above = branch if step == 0 else int(kept_at[step - 1][row, branch])
            parents[row, index] = place.get(above, -1)
    return parents
