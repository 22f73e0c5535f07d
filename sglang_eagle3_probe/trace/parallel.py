"""Reads the traces of several processes at once, where that pays and is safe."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from sglang_eagle3_probe.trace.garbage import no_search_for_cycles
from sglang_eagle3_probe.trace.process_trace import Fold, ProcessTrace
from sglang_eagle3_probe.trace.reading import read_process
from sglang_eagle3_probe.trace.record_base import Record

WORTH_BYTES = 48 * 1024 * 1024
"""Below this, one process reads everything in less time than others take to start and answer."""
MOST_WORKERS = 16


@dataclass(frozen=True)
class Job:
    """One process's trace to be read."""

    name: str
    files: list[Path]
    folds: tuple[Callable[[], Fold], ...]
    leave_out: frozenset[type[Record]]

    def run(self) -> ProcessTrace:
        return read_process(self.name, self.files, self.folds, self.leave_out)

    def size(self) -> int:
        """Bytes; what cannot be read counts as nothing."""
        total = 0
        for path in self.files:
            try:
                total += path.stat().st_size
            except OSError:
                continue
        return total


def read_all(jobs: Sequence[Job], workers: int | None = None) -> list[ProcessTrace]:
    """Traces in the order of the jobs. One at a time where processes cannot be had."""
    sizes = [job.size() for job in jobs]
    if workers is None:
        workers = _cores() if sum(sizes) >= WORTH_BYTES else 1
    workers = min(workers, len(jobs), MOST_WORKERS)
    with no_search_for_cycles():
        if workers > 1 and _may_fork():
            # The largest first: begun last, it would keep one core busy when the others are done.
            order = sorted(range(len(jobs)), key=lambda i: -sizes[i])
            try:
                with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
                    running = {i: pool.submit(jobs[i].run) for i in order}
                    return [running[i].result() for i in range(len(jobs))]
            except (BrokenProcessPool, OSError):  # killed for memory, or no process to be had
                pass
        return [job.run() for job in jobs]


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _may_fork() -> bool:
    """A fork copies locks that other threads hold, and on macOS system libraries forbid it; other
    ways of starting run the caller's main module again, which a library must not ask of it."""
    return (
        sys.platform.startswith("linux")
        and threading.active_count() == 1
        and not multiprocessing.current_process().daemon
    )
