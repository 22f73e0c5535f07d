"""Data-parallel training in single-threaded processes.

Models this small spend their time in element-wise work, where two processes of one thread each
are about one and a half times as fast as one process of two threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class Progress:
    """Prints a line every ``every`` seconds: step, loss, time left."""

    def __init__(self, label: str, steps: int, every: float = 20.0) -> None:
        self.label, self.steps, self.every = label, steps, every
        self._start = self._last = time.monotonic()
        self._sum, self._count = 0.0, 0

    def __call__(self, step: int, loss: float) -> None:
        self._sum, self._count = self._sum + loss, self._count + 1
        now = time.monotonic()
        if now - self._last < self.every and step + 1 < self.steps:
            return
        left = (now - self._start) / (step + 1) * (self.steps - step - 1)
        print(
            f"[{self.label}] step {step + 1}/{self.steps}  loss {self._sum / self._count:.3f}  "
            f"{now - self._start:.0f} s, {left:.0f} s left",
            flush=True,
        )
        self._last, self._sum, self._count = now, 0.0, 0


def use_one_thread() -> None:
    torch.set_num_threads(1)
    if torch.cpu._is_amx_tile_supported():
        # bf16 products with float32 sums, where the CPU has the unit for it
        torch.set_float32_matmul_precision("medium")


def _worker(
    rank: int, world: int, rendezvous: str, entry: Callable[..., None], args: tuple[Any, ...]
) -> None:
    use_one_thread()
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    try:
        entry(rank, world, *args)
    finally:
        dist.destroy_process_group()


def run_data_parallel(
    entry: Callable[..., None], args: tuple[Any, ...], scratch: Path, world: int
) -> None:
    """Run ``entry(rank, world, *args)`` in ``world`` processes that can ``average_gradients``."""
    rendezvous = scratch / f"rendezvous-{os.getpid()}-{time.monotonic_ns()}"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.spawn(_worker, (world, str(rendezvous), entry, args), nprocs=world)
    rendezvous.unlink(missing_ok=True)


def average_gradients(model: nn.Module, world: int) -> None:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for gradient in gradients:
        gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()
