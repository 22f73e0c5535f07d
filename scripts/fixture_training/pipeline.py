"""The stages between text and trained weights, each callable on its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .generate import Sequences, continue_prompts, pieces
from .target_model import Target

PROMPT_LENGTH = 32
SEQUENCE_LENGTH = 160
PER_TEMPERATURE = 640
CORPUS_SEQUENCES = 640
HELD_OUT_SEQUENCES = 64


@dataclass(frozen=True)
class DraftData:
    """Training sequences (count, length), and the two held-out sets for the accuracies."""

    train: Tensor
    held_out_generations: Sequences
    held_out_corpus: Sequences


def draft_data(target: Target, train: np.ndarray, held_out: np.ndarray, seed: int) -> DraftData:
    """Continuations of training text at temperature 0 and 0.7, plus training text as it is."""
    device = target.cos.device
    train_ids = torch.from_numpy(train).to(device)
    held_out_ids = torch.from_numpy(held_out).to(device)
    prompts = pieces(train_ids, 2 * PER_TEMPERATURE, PROMPT_LENGTH, seed)
    parts = [
        continue_prompts(target, part, SEQUENCE_LENGTH, temperature, seed + 1).ids
        for temperature, part in zip((0.0, 0.7), prompts.chunk(2), strict=True)
    ]
    parts.append(pieces(train_ids, CORPUS_SEQUENCES, SEQUENCE_LENGTH, seed + 2))
    held_out_prompts = pieces(held_out_ids, HELD_OUT_SEQUENCES, PROMPT_LENGTH, seed + 3)
    held_out_pieces = pieces(held_out_ids, HELD_OUT_SEQUENCES, SEQUENCE_LENGTH, seed + 4)
    return DraftData(
        train=torch.cat(parts),
        held_out_generations=continue_prompts(
            target, held_out_prompts, SEQUENCE_LENGTH, 0.0, seed + 5
        ),
        held_out_corpus=Sequences(held_out_pieces, 0),
    )
