"""Training of a draft with training-time test, and its per-step accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .draft_model import Draft, DraftShape
from .generate import Sequences
from .optim import Optimizer, schedule
from .parallel import Progress
from .target_model import Target

ACCURACY_DEFINITION = (
    "accuracy[k]: share of counted positions at which step k's argmax, mapped to the target's "
    "vocabulary, equals the target's argmax over its full vocabulary; teacher-forced with the "
    "tokens of the sequence, all positions counted unconditionally; a target argmax outside the "
    "draft vocabulary counts as wrong. joint[k]: share at which steps 0..k are all right."
)


@dataclass(frozen=True)
class DraftRecipe:
    steps: int
    sequences: int = 16
    test_steps: int = 3
    step_decay: float = 0.8
    matrix_lr: float = 0.02
    head_lr: float = 0.004
    norm_lr: float = 0.01
    gradient_clip: float = 0.5
    seed: int = 30


def choose_draft_vocabulary(target: Target, sequences: Tensor, size: int) -> Tensor:
    """The ``size`` ids that are most often the target's argmax; sorted, shape (size,)."""
    counts = torch.zeros(target.shape.vocab_size, device=sequences.device)
    with torch.no_grad():
        for rows in sequences.split(32):
            choice = target(rows).argmax(-1).flatten()
            counts += torch.bincount(choice, minlength=len(counts))
    # among equals the lower id, which the tokenizer merged earlier
    order = torch.sort(counts, descending=True, stable=True).indices
    return order[:size].sort().values


def chain_logits(
    target: Target, draft: Draft, ids: Tensor, count: int
) -> tuple[list[Tensor], Tensor]:
    """Draft logits of every step, (batch, length - count, draft_vocab), and the target's last
    boundary (batch, length, hidden). Step k at row t is to be held against the target at
    t + 1 + k."""
    with torch.no_grad():
        states = target.boundaries(ids)
    combined = draft.combine([states[h] for h in draft.shape.boundaries])
    return draft.chain(states[0], combined, count), states[-1]


def draft_loss(target: Target, draft: Draft, ids: Tensor, recipe: DraftRecipe) -> Tensor:
    """Cross-entropy against the target over the draft vocabulary, steps weighted by decay^k."""
    logits, last_boundary = chain_logits(target, draft, ids, recipe.test_steps)
    with torch.no_grad():
        head = target.lm_head.weight[draft.target_ids]
        wanted = F.linear(target.model.norm(last_boundary), head).softmax(-1)
    loss = torch.zeros((), device=ids.device)
    for k, step_logits in enumerate(logits):
        rows = step_logits.shape[1]
        cross = -(wanted[:, 1 + k : 1 + k + rows] * step_logits.log_softmax(-1)).sum(-1)
        loss = loss + recipe.step_decay**k * cross.mean()
    return loss


def train_draft(
    label: str, target: Target, shape: DraftShape, sequences: Tensor, recipe: DraftRecipe
) -> Draft:
    """Train on ``sequences`` (count, length); weights come back rounded to bfloat16."""
    torch.manual_seed(recipe.seed)
    draft = Draft(shape).to(sequences.device)
    vocabulary = choose_draft_vocabulary(target, sequences, shape.draft_vocab_size)
    draft.start_from(target, vocabulary, sequences[:16])
    optimizer = Optimizer(
        draft,
        matrix_lr=recipe.matrix_lr,
        embedding_lr=0.0,
        head_lr=recipe.head_lr,
        norm_lr=recipe.norm_lr,
    )
    generator = torch.Generator().manual_seed(recipe.seed)
    progress, order = Progress(label, recipe.steps), torch.empty(0, dtype=torch.int64)
    for step in range(recipe.steps):
        if len(order) < recipe.sequences:
            order = torch.randperm(len(sequences), generator=generator)
        mine, order = order[: recipe.sequences], order[recipe.sequences :]
        loss = draft_loss(target, draft, sequences[mine], recipe)
        loss.backward()
        nn.utils.clip_grad_norm_(draft.parameters(), recipe.gradient_clip)
        optimizer.step(schedule(step, recipe.steps))
        progress(step, float(loss.detach()))
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return draft.eval()


@torch.no_grad()
def step_accuracy(
    target: Target, draft: Draft, sequences: Sequences, count: int = 3
) -> dict[str, Any]:
    """Per-step accuracy over the positions that come after ``generated_from``."""
    right_of_step: list[list[Tensor]] = [[] for _ in range(count)]
    target_ids, covered = draft.target_ids, []
    for ids in sequences.ids.split(16):
        logits, last_boundary = chain_logits(target, draft, ids, count)
        choice = target.logits_of(last_boundary).argmax(-1)
        # row t predicts x_{t+2} first: start where that is the first token of interest
        first = max(sequences.generated_from - 2, 0)
        for k, step_logits in enumerate(logits):
            rows = step_logits.shape[1]
            right = target_ids[step_logits.argmax(-1)] == choice[:, 1 + k : 1 + k + rows]
            right_of_step[k].append(right[:, first:].flatten())
        covered.append(draft.t2d[choice[:, first:]].flatten())
    right = torch.stack([torch.cat(parts) for parts in right_of_step])
    joint = right.cumprod(0)
    return {
        "accuracy": [round(float(r), 4) for r in right.float().mean(1)],
        "joint": [round(float(r), 4) for r in joint.float().mean(1)],
        "positions": int(right.shape[1]),
        "target_argmax_in_draft_vocab": round(float(torch.cat(covered).float().mean()), 4),
    }
