"""What a tap costs on the device and on the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from sglang_eagle3_probe.device import tap
from sglang_eagle3_probe.device.drain import Drain

from .common import capture, rings

LAUNCHES = 50


def replay_us(body: Callable[[], object]) -> float:
    """Microseconds of a graph of LAUNCHES times ``body``, per body: median of 30 replays."""

    def bodies() -> None:
        for _ in range(LAUNCHES):
            body()

    graph = capture(bodies)
    times = []
    for _ in range(35):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / LAUNCHES)
    return round(statistics.median(times[5:]), 3)


def cost_in_graph() -> Iterator[dict[str, Any]]:
    """Device time of one tap inside a graph, beside the smallest kernel torch can launch."""
    one = torch.zeros(1, device="cuda")
    yield {"kernel": "torch add_ on 1 value", "us": replay_us(lambda: one.add_(1))}
    for width in (2048, 7168):
        for rows in (4, 16, 48, 96, 192):
            device, _ = rings(slots=3, max_rows=192, depth=64)
            x = torch.randn(rows, 3 * width, device="cuda").to(torch.bfloat16)
            cost = replay_us(lambda device=device, x=x: tap.record(device, 0, x))
            yield {"kernel": "tap", "rows": rows, "slots": 3, "width": width, "us": cost}


def cost_on_host() -> dict[str, Any]:
    """Host time of the calls that run on the scheduler's thread, median microseconds."""
    device, _ = rings(slots=3, max_rows=192, depth=64)
    x = torch.randn(16, 3 * 7168, device="cuda").to(torch.bfloat16)
    drain = Drain(device)
    times: dict[str, list[float]] = {"eager_record": [], "start": [], "poll_none": [], "poll": []}

    def timed(name: str, call: Callable[[], object]) -> None:
        begin = time.perf_counter_ns()
        call()
        times[name].append((time.perf_counter_ns() - begin) / 1000)

    for _ in range(60):
        timed("eager_record", lambda: tap.record(device, 0, x))
        timed("start", drain.start)
        timed("poll_none", drain.poll)
        torch.cuda.synchronize()
        timed("poll", drain.poll)
    medians = {name: round(statistics.median(found[10:]), 1) for name, found in times.items()}
    return {"ring_mib": round(device.nbytes / 2**20, 2), "us": medians}
