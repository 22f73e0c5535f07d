"""Training of a target on the token stream, and its held-out loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .optim import Optimizer, schedule
from .parallel import Progress, average_gradients, run_data_parallel
from .target_model import Target, TargetShape


@dataclass(frozen=True)
class TargetRecipe:
    """One step sees ``sequences`` sequences of ``length`` tokens, over all processes."""

    steps: int
    sequences: int = 12
    length: int = 256
    matrix_lr: float = 0.01
    embedding_lr: float = 0.002
    head_lr: float = 0.008
    norm_lr: float = 0.01
    embedding_std: float = 0.02
    seed: int = 20
    processes: int = 2


def sequence_starts(tokens: int, recipe: TargetRecipe, generator: torch.Generator) -> Tensor:
    """Start offsets for all steps, (steps, sequences): whole passes in random order, each pass
    with another phase, so that no two passes cut the stream alike."""
    needed = recipe.steps * recipe.sequences
    starts: list[Tensor] = []
    while sum(len(s) for s in starts) < needed:
        phase = int(torch.randint(recipe.length, (1,), generator=generator))
        count = (tokens - phase - 1) // recipe.length
        starts.append(torch.randperm(count, generator=generator) * recipe.length + phase)
    return torch.cat(starts)[:needed].view(recipe.steps, recipe.sequences)


def held_out_loss(
    model: Target, stream: np.ndarray, *, window: int = 256, stride: int = 128, batch: int = 16
) -> float:
    """Mean loss in nats per token, sliding window: every scored token has between
    ``window - stride`` and ``window`` tokens of context (fewer at the start of the stream)."""
    ids = torch.from_numpy(stream).to(model.cos.device)
    starts = list(range(0, len(ids) - window, stride))
    losses: list[Tensor] = []
    with torch.no_grad():
        for at in range(0, len(starts), batch):
            rows = torch.stack([ids[s : s + window + 1] for s in starts[at : at + batch]])
            logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
            if at == 0:
                losses.append(loss[0, : window - stride])
            losses.append(loss[:, window - stride :].flatten())
    return float(torch.cat(losses).mean())


def _train(
    rank: int,
    world: int,
    shape: TargetShape,
    recipe: TargetRecipe,
    train: np.ndarray,
    held_out: np.ndarray,
    destination: Path,
    device: str = "cpu",
) -> None:
    torch.manual_seed(recipe.seed)
    model = Target(shape)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=recipe.embedding_std)
    model = model.to(device)
    if rank == 0:
        print(f"[{shape.kind}] {sum(p.numel() for p in model.parameters())} parameters")
    optimizer = Optimizer(
        model,
        matrix_lr=recipe.matrix_lr,
        embedding_lr=recipe.embedding_lr,
        head_lr=recipe.head_lr,
        norm_lr=recipe.norm_lr,
    )
    ids = torch.from_numpy(train).to(device)
    starts = sequence_starts(len(ids), recipe, torch.Generator().manual_seed(recipe.seed))
    progress = Progress(shape.kind, recipe.steps)
    for step in range(recipe.steps):
        mine = starts[step, rank::world]
        rows = torch.stack([ids[s : s + recipe.length + 1] for s in mine.tolist()])
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        if world > 1:
            average_gradients(model, world)
        optimizer.step(schedule(step, recipe.steps))
        if rank == 0:
            progress(step, float(loss.detach()))
            if (step + 1) % 200 == 0:
                torch.save(model.state_dict(), destination)
                sample = held_out_loss(model, held_out[:12_000])
                print(f"[{shape.kind}] held-out sample {sample:.3f}", flush=True)
    if rank == 0:
        torch.save(model.state_dict(), destination)


def train_target(
    shape: TargetShape,
    recipe: TargetRecipe,
    train: np.ndarray,
    held_out: np.ndarray,
    destination: Path,
    device: str = "cpu",
) -> Target:
    """Train and return the model with its weights rounded to bfloat16, as they are stored.

    ``destination`` keeps the float32 state for inspection.
    """
    arguments = (shape, recipe, train, held_out, destination, device)
    if device == "cpu":
        run_data_parallel(_train, arguments, destination.parent, recipe.processes)
    else:
        _train(0, 1, *arguments)
    model = Target(shape).to(device)
    state = torch.load(destination, weights_only=True, map_location=device)
    model.load_state_dict({name: w.bfloat16().float() for name, w in state.items()})
    return model.eval()
