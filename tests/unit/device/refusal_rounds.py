"""Made-up verify rounds, consistent the way a server's are."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_probe.device.refusals import DraftLogits, Verified, inverse_map

TARGET, DRAFT = 200, 150


def make_round(
    seed: int,
    *,
    requests: int,
    steps: int,
    nodes: int | None = None,
    chain: bool = True,
    mapped: bool = True,
    pool_rows: int = 32,
    dtype: Any = torch.float32,
) -> tuple[Verified, DraftLogits]:
    """A round whose drafts come from the kept logits, but for one request that has stale ones."""
    random = torch.Generator().manual_seed(seed)
    nodes = nodes or steps + 1
    target_width = TARGET if mapped else DRAFT
    hot = torch.randperm(TARGET, generator=random)[:DRAFT].sort().values
    kept = DraftLogits(pool_rows, steps, DRAFT, chain=chain, device="cpu")
    pool = torch.randperm(16, generator=random)[:requests]
    drafts = torch.randint(0, target_width, (requests, nodes), generator=random)
    for step in range(steps):
        logits = torch.randn(requests, DRAFT, generator=random).to(dtype)
        if step == 0:
            assert kept.keep_first(pool, logits)
        elif chain:
            kept.keep_later(step, logits)
        if chain:
            ids = logits.argmax(-1)
            drafts[:, step + 1] = hot[ids] if mapped else ids
    if chain:
        drafts[0, 1:] = hot[0] if mapped else 0  # not what the kept logits say
    accept_lens = torch.randint(1, steps + 2, (requests,), generator=random, dtype=torch.int32)
    accept_lens[0] = 1
    predict = torch.randint(0, target_width, (requests, nodes), generator=random, dtype=torch.int32)
    target = torch.randn(requests * nodes, target_width, generator=random)
    for row in range(1, requests, 2):
        at = row * nodes + int(accept_lens[row]) - 1
        if chain and int(accept_lens[row]) <= steps:
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
            chain=chain,
        ),
        kept,
    )
