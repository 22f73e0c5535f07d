#!/usr/bin/env python3
"""What the probe's Python costs the scheduler's thread in a decode round: two versions compared.

Both versions are loaded into this process and wrap the same made-up worker (V2, CUDA graphs: Python
sees the calls of a round, not the forwards). Blocks of rounds alternate between the bare worker and
the two; time is this thread's CPU time, so other work on the machine counts less. Left out, because
there is no GPU here: launches of kernels and CUDA events. Records are dropped where the writer's
thread would take them: at this rate of rounds it would always hold the interpreter's lock.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

HERE = Path(__file__).resolve().parents[1]
PACKAGE = "sglang_eagle3_probe"
BATCH, STEPS, DRAFT_VOCABULARY, TARGET_VOCABULARY = 8, 3, 2000, 4000
STRIDE_ON_GPU = 5
"""``phase_times`` times one unit in five on CUDA, and every one on a CPU."""


class Mode:
    """A decode round's forward mode."""

    def is_idle(self) -> bool:
        return False

    def is_extend(self) -> bool:
        return False

    def is_decode(self) -> bool:
        return True


class Result:
    """A verify round's result; the scheduler keeps it until it is resolved."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        vars(self).update(tensors)


class Host:
    """The calls that a round of SGLang makes, doing next to nothing."""

    def __init__(self) -> None:
        nodes, rows = STEPS + 1, BATCH * (STEPS + 1)
        self.module = ModuleType("bench_host")
        self.module.Host = type("Host", (), dict(CALLS))  # type: ignore[attr-defined]
        self.calls = self.module.Host()
        self.calls.topk, self.calls.speculative_num_steps = 1, STEPS
        self.calls.speculative_num_draft_tokens = nodes
        self.calls.hot_token_id = torch.arange(DRAFT_VOCABULARY)
        self.calls.draft_runner = SimpleNamespace(
            req_to_token_pool=SimpleNamespace(req_to_token=torch.zeros(64, 1))
        )
        model = SimpleNamespace(config=SimpleNamespace(vocab_size=TARGET_VOCABULARY))
        self.calls.target_worker = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.output = SimpleNamespace(next_token_logits=torch.zeros(BATCH, DRAFT_VOCABULARY))
        self.tensors = {
            "accept_lens": torch.full((BATCH,), 2),
            "next_token_ids": torch.zeros(rows, dtype=torch.int64),
            "logits_output": SimpleNamespace(next_token_logits=torch.zeros(1, TARGET_VOCABULARY)),
            "speculative_num_draft_tokens": nodes,
        }
        info = SimpleNamespace(
            draft_token=torch.zeros(rows), draft_token_num=nodes, spec_steps=STEPS, topk=1
        )
        sampling = SimpleNamespace(temperature=1.0, top_k=1)
        self.requests = [
            SimpleNamespace(
                rid=f"request-{number}",
                spec_verify_ct=1,
                is_retracted=False,
                finished=lambda: False,
                origin_input_ids=[1] * 10,
                output_ids=[2] * 10,
                sampling_params=sampling,
            )
            for number in range(BATCH)
        ]
        self.batch = SimpleNamespace(
            reqs=self.requests,
            req_pool_indices=torch.arange(BATCH),
            spec_info=info,
            forward_mode=Mode(),
        )

    def rounds(self, count: int) -> float:
        """CPU seconds of this thread for so many rounds."""
        calls, batch = self.calls, self.batch
        began = time.thread_time()
        for _ in range(count):
            result = Result(self.tensors)
            calls.worker_forward(batch)
            calls.draft_round(batch)
            calls.verify_round(batch, result)
            calls.target_forward(batch)
            calls.draft_extend_round(batch, result, self.output)
            for request in self.requests:
                request.spec_verify_ct += 1
            calls.verify_result(result, batch)
            calls.request_output(self.requests, None)
        return time.thread_time() - began


def _extend(self: Any, batch: Any, batch_result: Any, output: Any) -> None:
    self.draft_extend_graph(batch, output)


CALLS: dict[str, Callable[..., Any]] = {
    "worker_forward": lambda self, batch: None,
    "target_forward": lambda self, batch: None,
    "draft_round": lambda self, batch: None,
    "verify_round": lambda self, batch, result: result,
    "draft_extend_round": _extend,
    "draft_extend_graph": lambda self, forward_batch, output: output,
    "verify_result": lambda self, result, batch: None,
    "request_output": lambda self, reqs, skip_req: None,
}


@contextmanager
def package_from(root: Path) -> Iterator[None]:
    """Imports of the package come from ``root`` inside the block, and are forgotten after it."""
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [n for n in sys.modules if n.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def probed_host(root: Path, level: str, place: Path, changes: dict[str, Any]) -> Host:
    """A host that the package at ``root`` has wrapped, as far as a decode round goes."""
    with package_from(root):
        module: Callable[[str], Any] = lambda name: importlib.import_module(f"{PACKAGE}.{name}")  # noqa: E731
        kind = module("settings").Settings
        known = {name: value for name, value in changes.items() if hasattr(kind, name)}
        settings = kind(enabled=True, dir=str(place), level=level, **known)
        session = module("host.session").Session(settings)
        session.recorder.emit = lambda _record: None
        session.server_args = SimpleNamespace(device="cpu", speculative_algorithm="EAGLE3")
        vocabulary = module("taps.draft_vocabulary").DraftVocabulary(session)
        acceptance = module("taps.acceptance").AcceptanceTap(session, vocabulary)
        handlers: dict[str, list[Any]] = {
            "verify_result": [acceptance.tap],
            "request_output": [module("taps.requests").RequestEndTap(session).tap],
        }
        refusals = module("taps.refusals")
        # The kernel's launch is not Python of ours; its twin on the CPU would drown everything.
        refusals.record_refusals = lambda *_: True
        if level != "wiring":
            add = module("attach")._add_stats
            extra = [acceptance] if len(inspect.signature(add).parameters) > 2 else []
            add(session, handlers, *extra)
        host = Host()
        seam, wrap = module("host.seams").Seam, module("host.wrapping").wrap
        releases = module("host.versions").Releases()
        for name in CALLS:
            if handlers.get(name):
                wrap(host.module, seam(name, "bench", f"Host.{name}", (), releases, ""),
                     handlers[name])  # fmt: skip
        if level != "wiring":
            _as_after_start(module, host, handlers)
        return host


def _as_after_start(
    module: Callable[[str], Any], host: Host, handlers: dict[str, list[Any]]
) -> None:
    """What has happened by the time a server with CUDA graphs decodes."""
    call, binder = module("host.call").Call, module("host.call").Binder
    [built] = handlers["draft_built"]
    built.run(lambda _call: None, call(binder({}), print, host.calls, (), {}))
    metadata = SimpleNamespace(forward_mode=Mode())
    logits = call(binder({"logits_metadata": 0}), print, "draft", (metadata,), {})
    handlers["target_logits"][0].run(lambda _call: host.output, logits)
    host.rounds(1)
    # Methods of the taps are the only way to them from here.
    for handler in (h for taps in handlers.values() for h in taps):
        before = getattr(handler, "before", None) or getattr(handler, "_before", None)
        before = before or getattr(handler, "_begin", None)
        owner = getattr(before, "__self__", None)
        if hasattr(owner, "_stride"):  # versions before 2026-11-30
            owner._stride = STRIDE_ON_GPU
        turns = getattr(inspect.getmodule(type(owner)), "device_turns", None)
        if turns is not None:
            owner._turns = turns()
        if hasattr(owner, "_ring_for"):
            owner._ring_for(torch.zeros(1, 1))
            for clock in owner._units.values():
                clock.recorded = True


def compare(before: Path, level: str, options: argparse.Namespace) -> None:
    """Print what a round costs in the version at ``before`` and in this one, and their ratio."""
    blocks, rounds = options.blocks, options.rounds
    changes = {"refusal_every": options.refusal_every}
    with tempfile.TemporaryDirectory(prefix="bench-wrappers-") as place:
        hosts = {
            "bare": Host(),
            "before": probed_host(before, level, Path(place) / "before", changes),
            "after": probed_host(HERE, level, Path(place) / "after", changes),
        }
        for host in hosts.values():
            host.rounds(rounds)
        spent: dict[str, list[float]] = {name: [] for name in hosts}
        for block in range(blocks):
            names = list(hosts) if block % 2 else list(hosts)[::-1]
            for name in names:
                spent[name].append(hosts[name].rounds(rounds) / rounds * 1e6)
    own = {
        name: [us - bare for us, bare in zip(spent[name], spent["bare"], strict=True)]
        for name in ("before", "after")
    }
    for name, values in own.items():
        print(f"level {level}, {name}: {_spread(values)} us a round, batch {BATCH}")
    ratios = [b / a for a, b in zip(own["before"], own["after"], strict=True)]
    print(f"level {level}, after / before, {blocks} pairs: {_spread(ratios, 3)}", flush=True)


def _spread(values: list[float], digits: int = 1) -> str:
    low, _, high = statistics.quantiles(values, n=4)
    return f"median {statistics.median(values):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def main() -> int:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="root of a checkout of the earlier version")
    parser.add_argument("--blocks", type=int, default=200, help="pairs (default: 200)")
    parser.add_argument("--rounds", type=int, default=100, help="rounds a block (default: 100)")
    parser.add_argument("--refusal-every", type=int, default=5, help="default: 5")
    parser.add_argument("--levels", nargs="+", default=["wiring", "stats"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for level in options.levels:
        compare(options.before.resolve(), level, options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
