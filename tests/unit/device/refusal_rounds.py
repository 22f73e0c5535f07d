"""Made-up verify rounds, consistent the way a server's are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from sglang_eagle3_probe.device.refusals import DraftLogits, Verified, inverse_map

TARGET, DRAFT = 200, 150


@dataclass
class Ending:
    """Where the right drafts of a request end, known from how the round was made.

    Attributes:
        position: of the first draft that is not right.
        logits: of the draft there; ``None`` where it was not run.
        has_argmax: one of the drafts submitted there is the target's argmax.
    """

    position: int
    logits: Any
    has_argmax: bool


def make_round(
    seed: int,
    *,
    requests: int,
    steps: int,
    mapped: bool = True,
    pool_rows: int = 32,
    dtype: Any = torch.float32,
) -> tuple[Verified, DraftLogits]:
    """A round whose drafts come from the kept logits, but for one request that has stale ones."""
    random = torch.Generator().manual_seed(seed)
    nodes = steps + 1
    target_width = TARGET if mapped else DRAFT
    hot = torch.randperm(TARGET, generator=random)[:DRAFT].sort().values
    kept = DraftLogits(pool_rows, steps, DRAFT, device="cpu")
    pool = torch.randperm(16, generator=random)[:requests]
    drafts = torch.randint(0, target_width, (requests, nodes), generator=random)
    for step in range(steps):
        logits = torch.randn(requests, DRAFT, generator=random).to(dtype)
        if step == 0:
            assert kept.keep_first(pool, logits)
        else:
            kept.keep_later(step, logits)
        ids = logits.argmax(-1)
        drafts[:, step + 1] = hot[ids] if mapped else ids
    drafts[0, 1:] = hot[0] if mapped else 0  # not what the kept logits say
    accept_lens = torch.randint(1, steps + 2, (requests,), generator=random, dtype=torch.int32)
    accept_lens[0] = 1
    predict = torch.randint(0, target_width, (requests, nodes), generator=random, dtype=torch.int32)
    target = torch.randn(requests * nodes, target_width, generator=random)
    for row in range(1, requests, 2):
        at = row * nodes + int(accept_lens[row]) - 1
        if int(accept_lens[row]) <= steps:
            target[at, drafts.flatten()[at + 1]] = 50.0
    return (
        Verified(
            accept_lens=accept_lens,
            predict=predict.flatten(),
            drafts=drafts.flatten(),
            target_logits=target,
            pool_indices=pool,
            inverse=inverse_map(hot, TARGET) if mapped else None,
            nodes=nodes,
            steps=steps,
        ),
        kept,
    )


def make_trees(
    seed: int,
    *,
    requests: int,
    steps: int,
    topk: int,
    nodes: int,
    mapped: bool = True,
    pool_rows: int = 32,
) -> tuple[Verified, DraftLogits, list[Ending]]:
    """A round of trees. The last request's first logits are not those its drafts came from."""
    random = torch.Generator().manual_seed(seed)
    width = TARGET if mapped else DRAFT
    hot = torch.randperm(TARGET, generator=random)[:DRAFT] if mapped else torch.arange(DRAFT)
    kept = DraftLogits(pool_rows, steps, DRAFT, topk=topk, nodes=nodes, device="cpu")
    pool = torch.randperm(16, generator=random)[:requests]
    searches = [_search(random, steps, topk) for _ in range(requests)]
    assert kept.keep_first(pool, torch.stack([search[0][0] for search in searches]))
    for step in range(1, steps):
        assert kept.keep_later(step, torch.cat([torch.stack(s[0][step]) for s in searches]))
    drafts = torch.randint(0, width, (requests, nodes), generator=random)
    predict = torch.randint(0, width, (requests, nodes), generator=random, dtype=torch.int32)
    target = torch.randn(requests * nodes, width, generator=random)
    accept_lens = torch.zeros(requests, dtype=torch.int32)
    parents, submitted, endings = [], [], []
    for row, (logits, candidates, groups) in enumerate(searches):
        # Scores are products of probabilities, so no child is better than its parent.
        order = sorted(range(len(candidates)), key=lambda c: -candidates[c][0])
        chosen = sorted(order[: nodes - 1])
        for node, number in enumerate(chosen):
            drafts[row, node + 1] = hot[candidates[number][2]]
        walk, last = [], -1
        below = [c for c in chosen if candidates[c][1] == last]
        longest = int(torch.randint(0, steps + 1, (1,), generator=random))
        while below and len(walk) < longest:
            last = below[int(torch.randint(0, len(below), (1,), generator=random))]
            walk.append(int(hot[candidates[last][2]]))
            below = [c for c in chosen if candidates[c][1] == last]
        position = len(walk)
        accept_lens[row] = position + 1
        predict[row, :position] = torch.tensor(walk, dtype=torch.int32)
        children = [int(hot[candidates[c][2]]) for c in below]
        at = row * nodes + (1 + chosen.index(last) if walk else 0)
        if row % 2 and children:
            target[at, children[-1]] = 50.0
        runs = groups[1 + (position - 1) * topk : 1 + position * topk] if position else [-1]
        there = None
        if last in runs and position < steps:
            there = logits[position][runs.index(last)] if position else logits[0]
        endings.append(Ending(position, there, int(target[at].argmax()) in children))
        parents.append(groups)
        submitted.append(chosen)
    assert kept.trees is not None
    assert kept.trees.keep(torch.tensor(parents), torch.tensor(submitted))
    stale = min(int(pool[-1]), kept.rows)
    kept.first[stale] = kept.first[stale].flip(0)
    round_ = Verified(
        accept_lens=accept_lens,
        predict=predict.flatten(),
        drafts=drafts.flatten(),
        target_logits=target,
        pool_indices=pool,
        inverse=inverse_map(hot, TARGET) if mapped else None,
        nodes=nodes,
        steps=steps,
        topk=topk,
    )
    return round_, kept, endings


def _search(random: Any, steps: int, topk: int) -> tuple[list[Any], list[Any], list[int]]:
    """Logits by step and beam; (score, parent, draft id) of each candidate; ``parent_list``."""
    logits: list[Any] = [torch.randn(DRAFT, generator=random) * 2]
    chances, ids = logits[0].softmax(-1).topk(topk)
    candidates = [(float(p), -1, int(i)) for p, i in zip(chances, ids, strict=True)]
    beams, groups = list(range(topk)), [-1]
    for _ in range(1, steps):
        groups += beams
        rows = [torch.randn(DRAFT, generator=random) * 2 for _ in beams]
        first = len(candidates)
        for beam, row in zip(beams, rows, strict=True):
            chances, ids = row.softmax(-1).topk(topk)
            score = candidates[beam][0]
            candidates += [
                (score * float(p), beam, int(i)) for p, i in zip(chances, ids, strict=True)
            ]
        logits.append(rows)
        fresh = range(first, len(candidates))
        beams = sorted(fresh, key=lambda c: -candidates[c][0])[:topk]
    return logits, candidates, groups
