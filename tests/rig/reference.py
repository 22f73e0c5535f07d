"""The same weights in Hugging Face transformers: what SGLang's tokens are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


@torch.inference_mode()
def greedy_tokens(
    model: Path, prompts: Sequence[Sequence[int]], new_tokens: int
) -> list[tuple[int, ...]]:
    """Greedy continuation of each prompt alone, float32, going on past any end token."""
    # As the rig's servers: more threads only wait for each other on a busy machine.
    torch.set_num_threads(1)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    answers = []
    for prompt in prompts:
        tokens: list[int] = []
        step, cache = torch.tensor([list(prompt)]), None
        while len(tokens) < new_tokens:
            output = network(input_ids=step, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            step = output.logits[:, -1:].argmax(-1)
            tokens.append(int(step))
        answers.append(tuple(tokens))
    return answers
