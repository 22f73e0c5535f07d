"""Sequences for the drafts: continuations by the target, and the states that go with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .target_model import Target


@dataclass(frozen=True)
class Sequences:
    """Token ids (count, length); ``generated_from`` is the first position the target wrote."""

    ids: Tensor
    generated_from: int


@torch.no_grad()
def continue_prompts(
    target: Target, prompts: Tensor, length: int, temperature: float, seed: int
) -> Sequences:
    """Continue prompts (count, prompt_length) to ``length`` tokens; temperature 0 is greedy."""
    generator = torch.Generator(prompts.device).manual_seed(seed)
    caches = target.new_caches(length)
    ids = prompts
    new = prompts
    while ids.shape[1] < length:
        start = ids.shape[1] - new.shape[1]
        last = target.boundaries(new, caches, start)[-1][:, -1]
        logits = target.logits_of(last)
        if temperature == 0.0:
            new = logits.argmax(-1, keepdim=True)
        else:
            new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        ids = torch.cat((ids, new), dim=1)
    return Sequences(ids, prompts.shape[1])


def pieces(stream: Tensor, count: int, length: int, seed: int) -> Tensor:
    """Random non-overlapping pieces of the stream, (count, length)."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(stream) // length, generator=generator)[:count]
    return torch.stack([stream[i * length : (i + 1) * length] for i in order.tolist()])
