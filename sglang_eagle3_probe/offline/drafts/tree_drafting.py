"""Drafting trees behind rows of a sequence, as SGLang's workers do it, and what rounding changes.

Source: ``speculative/eagle_worker_v2.py`` (``draft_forward``), ``spec_utils.select_top_k_tokens``
and ``eagle_utils.organize_draft_results`` of 0.5.23. Letters as in ``reference_draft``, and R
rounds, K topk, D nodes of a tree (``speculative_num_draft_tokens``, the root counted). A tree is
picked from C = K + K*K*(S-1) candidates, numbered so: K of step 0, then K*K a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sglang_eagle3_probe.offline.drafts.reference_draft import (
    Best,
    Context,
    Output,
    ReferenceDraft,
)

Paths = list[set[tuple[int, ...]]]
"""Depth - 1 -> the paths of target ids that end there, root left out."""
ROOT = -1


@dataclass(frozen=True)
class Candidates:
    """What R trees were picked from.

    Attributes:
        ids: int64 [R, C], target ids.
        above: int64 [R, C], the candidate that each hangs below, or ``ROOT``.
        scores: float32 [R, C], log of the product of probabilities down to it.
        taken: bool [R, C], submitted.
        last_taken: float32 [R], the lowest score among these.
        last_kept: float32 [R, S], the lowest score that was gone on with, a step; that of the last
            step says nothing.
        left_out: float32 [R, C + 1], of the candidate before (0: of the root), by how much the best
            token that was left out is below the last one taken up; infinite where none was.
        sizes: float32 [R], the largest logit seen, to judge rounding by.
    """

    ids: torch.Tensor
    above: torch.Tensor
    scores: torch.Tensor
    taken: torch.Tensor
    last_taken: torch.Tensor
    last_kept: torch.Tensor
    left_out: torch.Tensor
    sizes: torch.Tensor


@dataclass(frozen=True)
class Tree:
    """R submitted trees, roots left out.

    Attributes:
        node_ids: int64 [R, D-1], target ids in SGLang's order.
        parents: int64 [R, D-1], index into the same row; -1: the root.
        step_ids: int64 [R, S, K], candidates kept at each step. step_scores: float32 [R, S, K].
    """

    node_ids: torch.Tensor
    parents: torch.Tensor
    step_ids: torch.Tensor
    step_scores: torch.Tensor
    candidates: Candidates


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
    sizes = best.sizes
    left_out = torch.full((rounds, 1 + topk + topk * topk * (steps - 1)), torch.inf)
    left_out[:, 0] = _left_out(best, topk)
    expanded = torch.arange(topk).expand(rounds, topk)
    above_of = [torch.full((rounds, topk), ROOT)]
    last_kept = [scores.amin(1)]
    hidden = first.hidden.repeat_interleave(topk, dim=0)
    all_scores, all_ids = [scores], [ids]
    step_ids, step_scores = [ids], [scores]
    above = None if roots is None else roots[:, None].expand(-1, topk)
    behind = last.repeat_interleave(topk)
    at = positions.repeat_interleave(topk)
    earlier: list[Context] = []
    for step in range(1, steps):
        read = (ids if above is None else above).reshape(-1)
        output = draft.follow(context, behind, read, hidden, at + step, earlier)
        earlier.append(output.own)
        best = draft.best(output.normed, topk + 1)
        left_out.scatter_(1, expanded + 1, _left_out(best, topk).view(rounds, topk))
        above_of.append(expanded.repeat_interleave(topk, dim=1))
        probabilities = best.probabilities[:, :topk].reshape(rounds, topk, topk)
        spread = (scores[:, :, None] * probabilities).flatten(1)
        candidates = draft.target_ids(best.draft_ids[:, :topk]).reshape(rounds, topk * topk)
        top = spread.topk(topk, dim=-1)
        if above is not None:
            above = ids.gather(1, top.indices // topk)
        ids = candidates.gather(1, top.indices)
        offset = torch.arange(rounds)[:, None] * topk
        hidden = output.hidden[(top.indices // topk + offset).flatten()]
        scores = top.values
        sizes = torch.maximum(sizes, best.sizes.view(rounds, topk).amax(1))
        all_scores.append(spread)
        all_ids.append(candidates)
        expanded = top.indices + topk + topk * topk * (step - 1)
        last_kept.append(scores.amin(1))
        step_ids.append(ids)
        step_scores.append(scores)
    flat_scores, flat_ids = torch.cat(all_scores, dim=1), torch.cat(all_ids, dim=1)
    count = min(nodes - 1, flat_scores.shape[1])
    best_scores = flat_scores.topk(count, dim=-1)
    chosen = best_scores.indices.sort(dim=-1).values
    hang_below = torch.cat(above_of, dim=1)
    return Tree(
        node_ids=flat_ids.gather(1, chosen),
        parents=_parents(chosen, hang_below),
        step_ids=torch.stack(step_ids, dim=1),
        step_scores=torch.stack(step_scores, dim=1),
        candidates=Candidates(
            ids=flat_ids,
            above=hang_below,
            scores=_log(flat_scores),
            taken=torch.zeros_like(flat_ids, dtype=torch.bool).scatter_(1, chosen, True),
            last_taken=_log(best_scores.values.amin(1)),
            last_kept=_log(torch.stack(last_kept, dim=1)),
            left_out=left_out,
            sizes=sizes,
        ),
    )


def _log(scores: torch.Tensor) -> torch.Tensor:
    return scores.clamp_min(1e-30).log()


def _left_out(best: Best, topk: int) -> torch.Tensor:
    """Log of the probability of the last token taken up over that of the next one, [rows]."""
    shares = best.probabilities
    if shares.shape[1] <= topk:
        return torch.full((len(shares),), torch.inf)
    return _log(shares[:, topk - 1]) - _log(shares[:, topk])


def paths(ids: torch.Tensor, parents: torch.Tensor) -> Paths:
    """Depth -> the paths of ids [D-1] with ``parents`` [D-1] (-1: the root) that end there."""
    found: list[tuple[int, ...]] = []
    depths: Paths = []
    for token, parent in zip(ids.tolist(), parents.tolist(), strict=True):
        path = (*(found[parent] if 0 <= parent < len(found) else ()), token)
        found.append(path)
        while len(depths) < len(path):
            depths.append(set())
        depths[len(path) - 1].add(path)
    return depths


def _parents(chosen: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
    """Index of each chosen candidate's parent among the chosen; -1: the root."""
    parents = torch.full_like(chosen, -1)
    for row, numbers in enumerate(chosen.tolist()):
        place = {number: index for index, number in enumerate(numbers)}
        its = above[row].tolist()
        parents[row] = torch.tensor([place.get(its[number], -1) for number in numbers])
    return parents


class Rounding:
    """Which differences between one of the trees and another engine's rounding may have made."""

    def __init__(
        self, found: Candidates, row: int, rounding: float, mine: Paths, theirs: Paths
    ) -> None:
        """
        Args:
            rounding: two logits nearer to each other than so much of the larger may swap.
            mine, theirs: the paths of this tree and of the engine's.
        """
        self._mine, self._theirs = mine, theirs
        self._within = rounding * float(found.sizes[row])
        self._above: list[int] = found.above[row].tolist()
        self._scores: list[float] = found.scores[row].tolist()
        self._taken: list[bool] = found.taken[row].tolist()
        self._left_out: list[float] = found.left_out[row].tolist()
        self._last_taken = float(found.last_taken[row])
        last_kept: list[float] = found.last_kept[row].tolist()
        topk = sum(above == ROOT for above in self._above)
        self._steps = [
            0 if at < topk else 1 + (at - topk) // (topk * topk) for at in range(len(self._above))
        ]
        self._last_kept = [last_kept[step] for step in self._steps]
        ids: list[int] = found.ids[row].tolist()
        self._numbers = {(above, ids[at]): at for at, above in enumerate(self._above)}
        self._expanded = set(self._above)
        self._lowest: dict[int, float] = {}
        for at, above in enumerate(self._above):
            self._lowest[above] = min(self._scores[at], self._lowest.get(above, 0.0))

        # A branch that goes makes room for what was not quite good enough.
        freed = sum(self._may_fall(path) for step in range(len(mine)) for path in self._gone(step))
        spare = sorted(
            (x for x, is_taken in zip(self._scores, self._taken, strict=True) if not is_taken),
            reverse=True,
        )
        if freed and spare:
            self._last_taken = min(self._last_taken, spare[min(freed, len(spare)) - 1])

    def explains(self, step: int) -> bool:
        """Whether it may turn this tree's paths of ``step + 1`` tokens into the engine's."""
        came = _of_step(self._theirs, step) - _of_step(self._mine, step)
        return all(self._may_come(path) for path in came) and all(
            self._may_go(path) for path in self._gone(step)
        )

    def _gone(self, step: int) -> set[tuple[int, ...]]:
        return _of_step(self._mine, step) - _of_step(self._theirs, step)

    def _may_come(self, path: Sequence[int]) -> bool:
        """A path that the tree does not have. Only the first step off the tree is judged."""
        at = ROOT
        for token in path:
            below = self._numbers.get((at, token))
            if below is not None and self._taken[below]:
                at = below
                continue
            if below is not None:
                return self._are_near(self._last_taken, self._scores[below], self._steps[below])
            if at in self._expanded:
                return self._left_out[at + 1] <= self._within
            return self._are_near(self._last_kept[at], self._scores[at], self._steps[at])
        return False

    def _may_go(self, path: Sequence[int]) -> bool:
        """A path that the tree has."""
        at = self._end(path)
        if at is None:
            return False
        near = self._are_near(self._scores[at], self._last_taken, self._steps[at])
        return near or self._may_fall(path)

    def _may_fall(self, path: Sequence[int]) -> bool:
        """It, or what it hangs below, may not even have been a candidate."""
        at = self._end(path)
        while at is not None and at != ROOT:
            above = self._above[at]
            if (
                self._left_out[above + 1] <= self._within
                and self._scores[at] - self._lowest[above] <= self._within
            ):
                return True
            # Gone on with, and not far from being left where it was. All of step 0 is.
            if above != ROOT and self._steps[above] > 0:
                step = self._steps[above]
                if self._are_near(self._scores[above], self._last_kept[above], step):
                    return True
            at = above
        return False

    def _end(self, path: Sequence[int]) -> int | None:
        """The candidate; ``None`` for one whose branch was not submitted (probabilities of one)."""
        at: int | None = ROOT
        for token in path:
            if at is not None:
                at = self._numbers.get((at, token))
        return at

    def _are_near(self, higher: float, lower: float, step: int) -> bool:
        """Scores of a step are sums over the steps before."""
        return higher - lower <= self._within * (step + 1)


def _of_step(depths: Paths, step: int) -> set[tuple[int, ...]]:
    return depths[step] if step < len(depths) else set()
