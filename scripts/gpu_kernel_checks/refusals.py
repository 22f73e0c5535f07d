"""Refusals and phase times on a GPU: kernel against twin, copies in a graph, and their costs."""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from sglang_eagle3_probe.device.draft_trees import DraftTrees
from sglang_eagle3_probe.device.events import EventTimer
from sglang_eagle3_probe.device.refusals import LAYOUT, DraftLogits, record_refusals
from sglang_eagle3_probe.device.ring import Ring

from .common import Result, capture
from .timing import replay_us

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "unit" / "device"))
from refusal_rounds import make_round, make_trees

TENSORS = ("accept_lens", "predict", "drafts", "target_logits", "pool_indices", "inverse")


def _on_gpu(round_: Any, kept: DraftLogits) -> tuple[Any, DraftLogits]:
    moved = {name: getattr(round_, name) for name in TENSORS}
    moved = {name: None if value is None else value.cuda() for name, value in moved.items()}
    theirs = DraftLogits(
        kept.rows,
        kept.steps,
        kept.vocabulary,
        topk=kept.topk,
        nodes=round_.nodes,
        device="cuda",
    )
    theirs.first.copy_(kept.first)
    theirs.later.copy_(kept.later)
    if kept.trees is not None and theirs.trees is not None:
        theirs.trees.parents.copy_(kept.trees.parents)
        theirs.trees.submitted.copy_(kept.trees.submitted)
    return dataclasses.replace(round_, **moved), theirs


def refusal_kernel_equals_twin() -> Result:
    """The whole ring, bit for bit, over rounds of several shapes."""
    shapes: list[dict[str, Any]] = [
        {"requests": 6, "steps": 3},
        {"requests": 6, "steps": 3, "mapped": False},
        {"requests": 6, "steps": 3, "topk": 4, "nodes": 8},
        {"requests": 8, "steps": 3, "topk": 3, "nodes": 7, "mapped": False},
        {"requests": 6, "steps": 4, "topk": 2, "nodes": 9},
        {"requests": 12, "steps": 5, "topk": 8, "nodes": 33},
        {"requests": 6, "steps": 1, "topk": 4, "nodes": 5},
        {"requests": 6, "steps": 3, "pool_rows": 4},
        {"requests": 6, "steps": 3, "dtype": torch.bfloat16},
        {"requests": 1, "steps": 1},
    ]
    rounds = 0
    for shape in shapes:
        device, host = Ring([LAYOUT], "cuda"), Ring([LAYOUT], "cpu")
        for seed in range(20):
            round_, kept = (make_trees if "topk" in shape else make_round)(seed, **shape)[:2]
            record_refusals(host, host.places[0], round_, kept)
            record_refusals(device, device.places[0], *_on_gpu(round_, kept))
            rounds += 1
        if not torch.equal(device.buffer.cpu(), host.buffer):
            return False, {"differs": str(shape)}
    return True, {"rounds": rounds}


def draft_logits_follow_replays() -> Result:
    """A copy recorded in a graph keeps the logits of each replay."""
    kept = DraftLogits(48, 3, 32000, device="cuda")
    logits = torch.zeros(8, 32000, device="cuda")
    graph = capture(lambda: kept.keep_later(2, logits))
    for seed in range(5):
        logits.copy_(torch.randn(8, 32000, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        if not torch.equal(kept.later[1, :8], logits):
            return False, {"seed": seed}
    return True, {"replays": 5}


def searches_follow_replays() -> Result:
    """A copy of a tree's tables, recorded in a graph, keeps those of each replay."""
    trees = DraftTrees(48, 3, 4, 8, device="cuda")
    parents, submitted = (torch.zeros(8, n, dtype=torch.int64, device="cuda") for n in (9, 7))
    graph = capture(lambda: trees.keep(parents, submitted))
    for seed in range(5):
        parents.fill_(seed)
        submitted.fill_(seed + 1)
        graph.replay()
        if int(trees.parents[7, 8]) != seed or int(trees.submitted[7, 6]) != seed + 1:
            return False, {"seed": seed}
    return True, {"replays": 5}


def refusal_costs() -> Iterator[dict[str, Any]]:
    """Device time of the copies in the graph and of the kernel, host time of the calls."""
    for requests in (1, 8, 48):
        for vocabulary in (32000, 163840):
            kept = DraftLogits(64, 3, vocabulary, device="cuda")
            logits = torch.randn(requests, vocabulary, device="cuda")
            copy = replay_us(lambda kept=kept, logits=logits: kept.keep_later(1, logits))
            yield {
                "what": "copy of a step's logits in a graph",
                "requests": requests,
                "draft_vocabulary": vocabulary,
                "us": copy,
            }
    for requests in (1, 8, 48):
        yield {"what": "refusal kernel", "requests": requests, **_kernel_cost(requests)}
    timer: EventTimer[str] = EventTimer()
    yield {"what": "one timed unit on the host", "us": _host_us(lambda: _one_unit(timer))}


def _one_unit(timer: EventTimer[str]) -> None:
    pair = timer.begin()
    if pair is not None:
        timer.end(pair, "verify")
    for _ in timer.arrived():
        pass


def _kernel_cost(requests: int) -> dict[str, float]:
    """Every request refused at its second position; draft vocabulary 32 000, target's 163 840."""
    target, draft, nodes = 163840, 32000, 4
    round_, _ = make_round(1, requests=2, steps=3)
    kept = DraftLogits(64, 3, draft, device="cuda")
    kept.later.normal_()
    hot = torch.arange(draft, device="cuda", dtype=torch.int32) * 5
    inverse = torch.full((target,), -1, dtype=torch.int32, device="cuda")
    inverse[hot.long()] = torch.arange(draft, device="cuda", dtype=torch.int32)
    drafts = torch.zeros(requests, nodes, dtype=torch.int64, device="cuda")
    drafts[:, 2] = hot[kept.later[0, :requests].argmax(-1)]
    mine = dataclasses.replace(
        round_,
        accept_lens=torch.full((requests,), 2, dtype=torch.int32, device="cuda"),
        predict=torch.full((requests * nodes,), 5, dtype=torch.int32, device="cuda"),
        drafts=drafts.flatten(),
        target_logits=torch.randn(requests * nodes, target, device="cuda"),
        pool_indices=torch.arange(requests, device="cuda"),
        inverse=inverse,
        nodes=nodes,
    )
    ring = Ring([LAYOUT], "cuda")
    record_refusals(ring, ring.places[0], mine, kept)
    times = []
    for _ in range(50):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        record_refusals(ring, ring.places[0], mine, kept)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    host = _host_us(lambda: record_refusals(ring, ring.places[0], mine, kept))
    return {"us": round(statistics.median(times), 2), "host_us": host}


def _host_us(call: Callable[[], object]) -> float:
    times = []
    for _ in range(200):
        begin = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begin) / 1000)
        torch.cuda.synchronize()
    return round(statistics.median(times), 2)
