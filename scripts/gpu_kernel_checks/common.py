"""What the checks share: pairs of rings, inputs, capture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from sglang_eagle3_probe.device.layout import SiteLayout
from sglang_eagle3_probe.device.ring import Ring

EXACT = [0, 1, 5, 6, 7]
Result = tuple[bool, dict[str, Any]]


def region_differs(device: Ring, host: Ring) -> str | None:
    """What differs between the records and ticks of two rings, or None. Waits for the device."""
    found, expected = device.records(0).cpu(), host.records(0)
    if device.buffer[:2].tolist() != host.buffer[:2].tolist():
        return f"counters {device.buffer[:2].tolist()} and {host.buffer[:2].tolist()}"
    for word in EXACT:
        if not torch.equal(found[..., word], expected[..., word]):
            return f"word {word}"
    pair = [words[..., 2:5].contiguous().view(torch.float32) for words in (found, expected)]
    if not torch.allclose(*pair, rtol=1e-5, atol=1e-5):
        return f"floats by {float((pair[0] - pair[1]).abs().max())}"
    return None


def rings(**layout: int) -> tuple[Ring, Ring]:
    """The same ring on the GPU and on the CPU."""
    site = SiteLayout("site", **layout)
    return Ring([site], "cuda"), Ring([site], "cpu")


def values(rows: int, columns: int, dtype: Any) -> Any:
    """Random rows on the GPU, wider apart than they are long, with values that are no numbers."""
    x = (torch.randn(rows, columns + 32, device="cuda") * 5).to(dtype)[:, :columns]
    x[0, 1], x[-1, -1], x[rows // 2, 3] = math.nan, -math.inf, -0.0
    return x


def capture(body: Callable[[], object]) -> Any:
    """A CUDA graph of ``body``, as SGLang makes it: two eager runs, then the capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
        body()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph
