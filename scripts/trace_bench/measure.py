"""Runs a command on some cores and measures it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@dataclass(frozen=True)
class Measured:
    """One run of a command, its children included."""

    wall_s: float
    cpu_s: float
    """User and system time: what matters on a machine that others use too."""
    peak_mib: float
    """Memory of all its processes at once (proportional set size, sampled 20 times a second)."""
    code: int
    output: str

    def line(self) -> str:
        return f"{self.wall_s:.1f} s wall, {self.cpu_s:.1f} s CPU, {self.peak_mib:.0f} MiB"


def python(arguments: Sequence[str | Path], cores: Sequence[int]) -> Measured:
    """Run this Python with this checkout importable, on these cores."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    before = os.times()
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    peak = 0
    ended = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not ended.wait(0.05):
            peak = max(peak, _memory(process.pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    output, _ = process.communicate()
    ended.set()
    sampler.join()
    after = os.times()
    cpu_s = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    return Measured(time.perf_counter() - start, cpu_s, peak / MIB, process.returncode, output)


def _memory(pid: int) -> int:
    """Bytes of a process and its descendants; shared pages are split among those that share."""
    total = 0
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += sum(int(li.split()[1]) for li in rollup.splitlines() if li.startswith("Pss:"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return total * 1024 + sum(_memory(int(child)) for child in children)
