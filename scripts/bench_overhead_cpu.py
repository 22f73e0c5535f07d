#!/usr/bin/env python3
"""What the probe costs on the CPU rig: decode throughput with the probe over without it.

Two servers stay up for the whole run, one with the probe and one without; the one that is not
being measured is stopped (SIGSTOP), so both see the same machine. Pairs alternate in order. The
result is a ratio per pair, its median and its spread, never absolute speed: the rig's kernels are
slow on purpose. The measurement on GPUs is scripts/gpu_check.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fixtures.materialise import draft_variant, materialise  # noqa: E402
from fixtures.prompts import held_out_prompts  # noqa: E402
from rig.server import RigServer  # noqa: E402


@contextlib.contextmanager
def running(server: RigServer) -> Iterator[None]:
    """The server's whole process group runs inside the block and is stopped outside."""
    os.killpg(server.pid, signal.SIGCONT)
    try:
        yield
    finally:
        os.killpg(server.pid, signal.SIGSTOP)


def tokens_per_s(server: RigServer, prompts: list[list[int]], new_tokens: int) -> float:
    """Decode throughput over all requests of one call."""
    with running(server):
        began = time.perf_counter()
        answers = server.generate(prompts, max_new_tokens=new_tokens)
        elapsed = time.perf_counter() - began
    return sum(len(a.output_ids) for a in answers) / elapsed


def measure(pairs: int, batch: int, new_tokens: int, place: Path) -> list[float]:
    """One ratio (probe on / off) per pair."""
    target = materialise("deepseek", place / "target")
    # Boundaries, so that stock SGLang can serve the same wiring.
    draft = draft_variant("deepseek-draft-embed", place / "draft", aux_layer_ids=[0, 3, 6])
    prompts = [list(p.token_ids) for p in held_out_prompts(batch)]
    probe = ["--enable-probe", "--probe-dir", str(place / "traces")]
    ratios = []
    with RigServer(target, draft, log_file=place / "off.log", progress=_progress) as off:
        tokens_per_s(off, prompts, 8)
        with RigServer(
            target, draft, extra_args=probe, log_file=place / "on.log", progress=_progress
        ) as on:
            for server in (off, on):
                tokens_per_s(server, prompts, new_tokens)
            for pair in range(pairs):
                order = (off, on) if pair % 2 == 0 else (on, off)
                speed = {id(s): tokens_per_s(s, prompts, new_tokens) for s in order}
                ratios.append(speed[id(on)] / speed[id(off)])
                print(
                    f"pair {pair + 1} of {pairs}: off {speed[id(off)]:.1f} tokens/s, "
                    f"on {speed[id(on)]:.1f} tokens/s, ratio {ratios[-1]:.3f}",
                    flush=True,
                )
            # A stopped group cannot end in order.
            for server in (off, on):
                os.killpg(server.pid, signal.SIGCONT)
    return ratios


def _progress(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Parse arguments, measure, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9, help="at least 7 (default: 9)")
    parser.add_argument("--batch", type=int, default=4, help="requests at once (default: 4)")
    parser.add_argument("--new-tokens", type=int, default=192, help="per request (default: 192)")
    options = parser.parse_args()
    if options.pairs < 7:
        parser.error("fewer than 7 pairs say nothing here")
    with tempfile.TemporaryDirectory(prefix="bench-overhead-") as place:
        ratios = measure(options.pairs, options.batch, options.new_tokens, Path(place))
    ordered = sorted(ratios)
    print(
        f"level wiring, batch {options.batch}, {options.new_tokens} new tokens, "
        f"{len(ratios)} pairs: median ratio on/off {statistics.median(ratios):.3f}, "
        f"lowest {ordered[0]:.3f}, highest {ordered[-1]:.3f}, "
        f"standard deviation {statistics.stdev(ratios):.3f}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
