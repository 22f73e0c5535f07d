"""The kernel against its twin, eagerly and in CUDA graphs."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_probe.device import tap
from sglang_eagle3_probe.device.drain import Drain
from sglang_eagle3_probe.device.layout import decode

from .common import Result, capture, region_differs, rings, values

WIDTHS = [64, 192, 2048, 7168, 8193, 16384]


def kernel_equals_twin(dtype: Any) -> Result:
    """Eager launches over widths, rows, strides and slots."""
    cases, wrong = 0, []
    for width in WIDTHS:
        for rows, slots in ((1, 3), (5, 1), (192, 3), (1000, 2)):
            device, host = rings(slots=slots, max_rows=192, depth=2)
            for _ in range(3):  # goes around the ring
                x = values(rows, slots * width, dtype)
                done = tap.record(device, 0, x) and tap.record(host, 0, x.cpu())
                difference = region_differs(device, host) if done else "not recorded"
                cases += 1
                if difference:
                    wrong.append([width, rows, slots, difference])
    return not wrong, {"launches": cases, "wrong": wrong}


def graph_replays() -> Result:
    """100 replays with changing input: every tick right, Python called three times."""
    device, host = rings(slots=3, max_rows=16, depth=128)
    x = torch.zeros(12, 3 * 7168, dtype=torch.bfloat16, device="cuda")
    inputs = [values(12, 3 * 7168, torch.bfloat16).contiguous() for _ in range(100)]
    calls = 0

    def body() -> None:
        nonlocal calls
        calls += 1
        y = x.clone()  # an intermediate of the graph, as hidden states are; keeps NaN's bits
        assert tap.record(device, 0, y)

    graph = capture(body)
    for _ in range(2):  # the eager runs
        tap.record(host, 0, x.cpu())
    for source in inputs:
        x.copy_(source)
        graph.replay()
    for source in inputs:
        tap.record(host, 0, source.cpu())
    difference = region_differs(device, host)
    ticks = int(device.buffer[0])
    good = difference is None and calls == 3 and ticks == 102
    return good, {"ticks": ticks, "python_calls": calls, "difference": difference}


def graphs_of_several_sizes() -> Result:
    """Graphs for batches of 8, 4 and 1 share a site, replayed in turn."""
    device, host = rings(slots=2, max_rows=6, depth=64)
    x = torch.zeros(8, 2 * 192, dtype=torch.float16, device="cuda")
    graphs = {}
    for rows in (8, 4, 1):
        graphs[rows] = capture(lambda rows=rows: tap.record(device, 0, x[:rows] * 1))
        for _ in range(2):
            tap.record(host, 0, x[:rows].cpu())
    for step in range(40):
        rows = (8, 4, 1)[step % 3]
        x.normal_()
        graphs[rows].replay()
        tap.record(host, 0, x[:rows].cpu())
    difference = region_differs(device, host)
    return difference is None, {"ticks": int(device.buffer[0]), "difference": difference}


def padded_rows() -> Result:
    """A graph of 8 rows replayed for 5: the rows say 8, the first five records are right."""
    device, host = rings(slots=3, max_rows=8, depth=4)
    x = torch.zeros(8, 3 * 2048, dtype=torch.bfloat16, device="cuda")
    graph = capture(lambda: tap.record(device, 0, x))
    stale = torch.randn(8, 3 * 2048, device="cuda").to(torch.bfloat16)
    x.copy_(stale)
    fresh = torch.randn(5, 3 * 2048, device="cuda").to(torch.bfloat16)
    x[:5] = fresh
    graph.replay()
    padded = torch.cat([fresh, stale[5:]]).cpu()
    for part in (torch.zeros_like(padded), torch.zeros_like(padded), padded):
        tap.record(host, 0, part)
    difference = region_differs(device, host)
    rows = decode(device.records(0)[2].cpu().numpy())["rows"]
    return difference is None and bool((rows == 8).all()), {"difference": difference}


def compile_under_capture_is_refused() -> Result:
    """A specialisation first met in a capture is skipped and counted; the capture lives."""
    device, _ = rings(slots=1, max_rows=4, depth=4)
    x = torch.zeros(4, 320, dtype=torch.bfloat16, device="cuda")
    y = torch.zeros_like(x)
    torch.cuda.synchronize()

    def attempt() -> tuple[bool, bool]:
        graph = torch.cuda.CUDAGraph()
        drain = Drain(device)
        with torch.cuda.graph(graph):
            y.copy_(x + 1)
            recorded = tap.record(device, 0, x)
            started = drain.start() or drain.poll() is not None
        graph.replay()
        torch.cuda.synchronize()
        return recorded, started or drain.refused["capturing"] != 1

    first, started = attempt()
    counted = device.skipped == {("site", tap.NOT_COMPILED): 1}
    warmed = tap.warm_up(device, torch.bfloat16, 320)
    second, _ = attempt()
    ticks = int(device.buffer[0])
    good = not first and not started and counted and warmed and second and ticks == 1
    good = good and bool((y == 1).all())
    return good, {"first": first, "after_warm_up": second, "ticks": ticks}
