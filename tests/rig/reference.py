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


@torch.inference_mode()
def boundaries(model: Path, tokens: Sequence[int]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """All boundaries of one forward over the tokens, and what leaves the final norm.

    Returns:
        float32 [tokens, hidden] for each boundary 0 (embedding output) to the number of layers
        (before the final norm), and the final norm's output.
    """
    torch.set_num_threads(1)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    into_norm: list[torch.Tensor] = []
    network.model.norm.register_forward_pre_hook(lambda _module, args: into_norm.append(args[0]))
    output = network.model(input_ids=torch.tensor([list(tokens)]), output_hidden_states=True)
    states = [state[0] for state in output.hidden_states[:-1]]
    return [*states, into_norm[0][0]], output.last_hidden_state[0]
