"""Muon for the matrices of the layers, AdamW for the rest, and the learning-rate schedule.

Muon: momentum whose update is orthogonalised by a Newton-Schulz iteration (Keller Jordan, 2024).
At this size it needs about half of AdamW's tokens for the same loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Nearest (semi-)orthogonal matrices, roughly; (count, rows, columns) in and out."""
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Matrices of one shape are stacked and updated together."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        self.base_lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            by_shape[parameter.shape].append(parameter)
        self._groups = list(by_shape.values())
        self._buffers = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self._groups]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        lr = self.base_lr * scale
        for group, buffer in zip(self._groups, self._buffers, strict=True):
            gradient = torch.stack([p.grad for p in group])
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp(buffer, self.momentum))
            rows, columns = group[0].shape
            step = lr * max(1.0, rows / columns) ** 0.5
            for parameter, direction in zip(group, update, strict=True):
                parameter.mul_(1 - lr * self.weight_decay).add_(direction, alpha=-step)


class Optimizer:
    """Both optimizers behind one ``step``; ``scale`` is the schedule's value."""

    def __init__(
        self,
        model: nn.Module,
        *,
        matrix_lr: float,
        embedding_lr: float,
        head_lr: float,
        norm_lr: float,
        weight_decay: float = 0.0,
    ) -> None:
        matrices, embeddings, heads, norms = [], [], [], []
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if "embed_tokens" in name:
                embeddings.append(parameter)
            elif "lm_head" in name:
                heads.append(parameter)
            elif parameter.ndim == 2:
                matrices.append(parameter)
            else:
                norms.append(parameter)
        self.muon = Muon(matrices, lr=matrix_lr, weight_decay=weight_decay)
        groups = [
            {"params": params, "lr": lr, "base_lr": lr}
            for params, lr in ((embeddings, embedding_lr), (heads, head_lr), (norms, norm_lr))
            if params
        ]
        self.adam = torch.optim.AdamW(
            groups, betas=(0.8, 0.95), eps=1e-10, weight_decay=0.0, fused=True
        )

    def step(self, scale: float) -> None:
        self.muon.step(scale)
        for group in self.adam.param_groups:
            group["lr"] = group["base_lr"] * scale
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        for group in self.muon._groups:
            for parameter in group:
                parameter.grad = None


def schedule(step: int, steps: int, *, warmup: float = 0.02, decay: float = 0.6) -> float:
    """Short linear warm-up, plateau, then linear decay to zero over the last ``decay``."""
    done = step / steps
    if done < warmup:
        return (step + 1) / (warmup * steps)
    return min(1.0, (1 - done) / decay)
