"""Captured requests under CUDA graphs, against the hidden states that SGLang itself returns."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from sglang_eagle3_probe.offline.captured import CapturedRequest, read_requests
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import Fault

from .engines import Engine, EngineError, launch_all
from .equality import model_paths, prompts
from .runs import CHAIN_AND_TREE, Run

NEW_TOKENS = 64
REQUESTS = 3
WITH_LAYERS = 2


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """A chain and a tree at TP 1, or both at TP 2: per run two engines with the same prompts.

    One serves without the probe, one at level capture with all layers for the first requests. All
    engines start at once.
    """
    own = place / "capture"
    own.mkdir(exist_ok=True)
    pairs: list[tuple[Run, Engine, Engine]] = []
    for chosen in CHAIN_AND_TREE:
        if chosen.worker != "v2" or chosen.tp != max(1, options.tp):
            continue
        if not chosen.is_named(options.only):
            continue
        model, draft = model_paths(own, chosen.family, stock=True)
        arguments = {**chosen.arguments(model, draft), "enable_return_hidden_states": True}
        probe = {"level": "capture", "all_layers": str(WITH_LAYERS)}
        plain = Engine(f"plain-{chosen.name}", arguments, own)
        probed = Engine(f"capture-{chosen.name}", arguments, own, probe=probe)
        pairs.append((chosen, plain, probed))
    everything = [engine for _, *pair in pairs for engine in pair]
    try:
        failed = launch_all(everything, options.start_timeout)
        for name, error in failed.items():
            out.say(check="capture", engine=name, passed=False, error=error[-1500:])
        for chosen, plain, probed in pairs:
            try:
                if plain.ready and probed.ready:
                    expected, answer = _answer(plain), _answer(probed)
                    time.sleep(3)  # the writing thread
                    compare(chosen, probed, expected, answer, out)
            except EngineError as error:
                out.say(check="capture", run=chosen.name, passed=False, error=str(error)[-1500:])
            plain.stop()
            probed.stop()
    finally:
        for engine in everything:
            engine.stop()


def _answer(engine: Engine) -> dict[str, Any]:
    return engine.generate(prompts(REQUESTS, 5), NEW_TOKENS, hidden=True, keep_hidden=True)


def compare(
    run_: Run, engine: Engine, expected: dict[str, Any], answer: dict[str, Any], out: Any
) -> None:
    """Tokens, rows, boundaries and ranks."""
    trace = read(engine.traces)
    captures = {r.info.request: r for r in read_requests(engine.traces)}
    rows = equal = with_layers = 0
    problems: list[str] = []
    for index, meta in enumerate(answer["meta"]):
        request = captures.get(meta["id"])
        if request is None:
            problems.append(f"request {index} was not captured")
            continue
        problems += [f"request {index}: {text}" for text in request.lost]
        returned = _rows(answer["hidden"][index]).to(request.aux.dtype)
        same = (request.aux[: len(returned)] == returned).all(dim=1)
        rows += len(returned)
        equal += int(same.sum())
        with_layers += request.boundary_states is not None
        problems += [f"request {index}: {text}" for text in _wrong(request, meta)]
    digests = [
        {(p.request, p.piece): p.digests for p in process.of(CapturePiece)}
        for process in trace.processes
    ]
    faults = [f.error for process in trace.processes for f in process.of(Fault)]
    out.say(
        check="capture",
        run=run_.name,
        passed=not problems
        and not faults
        and rows > 0
        and equal == rows
        and with_layers == WITH_LAYERS
        and answer["tokens"] == expected["tokens"]
        and all(found == digests[0] for found in digests),
        tokens_equal=answer["tokens"] == expected["tokens"],
        returned_rows=rows,
        equal_bit_for_bit=equal,
        requests_with_all_boundaries=with_layers,
        ranks=len(digests),
        ranks_equal=all(found == digests[0] for found in digests),
        pieces=len(digests[0]) if digests else 0,
        bytes=sum(c.bytes for p in trace.processes for c in p.of(Capture)),
        problems=problems[:8],
        faults=faults[:4],
        probe_log=[line for line in engine.probe_lines() if "capture" in line][-8:],
    )


def _rows(hidden: list[Any]) -> torch.Tensor:
    pieces = [torch.tensor(part, dtype=torch.float32) for part in hidden]
    width = pieces[0].shape[-1]
    return torch.cat([piece.reshape(-1, width) for piece in pieces])


def _wrong(request: CapturedRequest, meta: dict[str, Any]) -> list[str]:
    """What of a request's rounds and boundaries does not fit."""
    texts = []
    accepted = (request.rounds["accepted_nodes"] >= 0).sum(dim=1) - 1
    if len(accepted) != meta["spec_verify_ct"]:
        texts.append(f"{len(accepted)} rounds, SGLang counted {meta['spec_verify_ct']}")
    counted = meta.get("spec_num_correct_drafts", meta.get("spec_accepted_drafts"))
    if counted is not None and int(accepted.sum()) != counted:
        texts.append(f"{int(accepted.sum())} correct drafts, SGLang counted {counted}")
    hidden = request.rounds.get("step_hidden")
    if hidden is None or not bool((hidden.float().abs().amax(dim=-1) > 0).all()):
        texts.append("draft steps without a state")
    if request.boundary_states is not None:
        known, width = request.boundaries_known, request.info.hidden_width
        for slot, boundary in enumerate(request.info.boundaries):
            aux = request.aux[known, slot * width : (slot + 1) * width]
            if not torch.equal(aux, request.boundary_states[known, boundary]):
                texts.append(f"boundary {boundary} is not what slot {slot} holds")
    return texts
