"""Ring values of CUDA graph replays against the hidden states that SGLang itself returns."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import Any

import torch

from sglang_eagle3_probe.device import reference
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import SlotStats, StatsCoverage

from .engines import Engine, EngineError, launch_all
from .equality import model_paths, prompts
from .runs import CHAIN_AND_TREE, Run

NEW_TOKENS = 64


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """A chain and a tree: level stats, every row written, hidden states returned, embedding first.

    In releases whose forward cannot capture the embedding it is the probe's copy.
    """
    engines: dict[Run, Engine] = {}
    for chosen in CHAIN_AND_TREE:
        if (chosen.worker, chosen.tp) != (options.worker, 1) or not chosen.is_named(options.only):
            continue
        model, draft = model_paths(place / "replay", chosen.family, stock=False)
        arguments = {**chosen.arguments(model, draft), "enable_return_hidden_states": True}
        probe = {"level": "stats", "stats_rows": "1"}
        engines[chosen] = Engine(f"replay-{chosen.name}", arguments, place, probe=probe)
    # Its first use compiles for a minute: let that happen while the engines start.
    ready = threading.Thread(target=flashinfer_rms, args=(torch.ones(1, 8),), daemon=True)
    ready.start()
    try:
        failed = launch_all(list(engines.values()), options.start_timeout)
        for name, error in failed.items():
            out.say(check="replay", engine=name, passed=False, error=error[-1500:])
        for chosen, engine in engines.items():
            if not engine.ready:
                continue
            try:
                engine.generate(prompts(1, 1), 16)
                engine.flush()
                answer = engine.generate(prompts(1, 5), NEW_TOKENS, hidden=True, keep_hidden=True)
                # Later rounds push the earlier ones out of the ring.
                engine.generate(prompts(1, 6), 64)
                ready.join(options.start_timeout)
                compare(chosen, engine, answer, out)
            except EngineError as error:
                out.say(check="replay", run=chosen.name, passed=False, error=str(error)[-1500:])
            engine.stop()
    finally:
        for engine in engines.values():
            engine.stop()


def flashinfer_rms(rows: torch.Tensor) -> torch.Tensor | None:
    """RMS per row by flashinfer's own RMSNorm, which neither we nor torch computed.

    rows: float [rows, width]. It returns x / rms in bfloat16, so the quotient of the two norms is
    the RMS to about 1e-3. ``None`` where flashinfer cannot run.
    """
    try:
        from flashinfer.norm import rmsnorm

        x = rows.to(device="cuda", dtype=torch.bfloat16).contiguous()
        y = rmsnorm(x, torch.ones(x.shape[-1], device="cuda", dtype=torch.bfloat16), eps=0.0)
        return (x.float().norm(dim=-1) / y.float().norm(dim=-1)).cpu()
    except Exception as error:
        print(f"  flashinfer's rmsnorm cannot run here: {error!r}"[:300], flush=True)
        return None


def compare(run_: Run, engine: Engine, answer: dict[str, Any], out: Any) -> None:
    """Match each returned row to a ring record by its exact fingerprint, then compare values."""
    pieces = [torch.tensor(part, dtype=torch.float32) for part in answer["hidden"][0]]
    prompt, *steps = pieces
    rows = torch.cat([s.reshape(-1, prompt.shape[-1]) for s in steps]).to(torch.bfloat16)
    process = read(engine.traces).processes[0]
    slots = len(process.of(SlotStats)[0].boundaries)
    ring: dict[int, list[list[float]]] = {}
    ticks: dict[int, set[float]] = {}
    for record in process.of(SlotStats):
        if record.site == "aux_verify" and record.full_rows:
            for row in record.full_rows:
                ring.setdefault(int(row[7]), []).append(row)
                ticks.setdefault(int(row[2]), set()).add(row[4])
    views = rows.view(len(rows), slots, -1)
    prints = reference.fingerprint(
        views.view(torch.int16).to(torch.int64) & 0xFFFF, reference.MIX_A
    )
    by_flashinfer = flashinfer_rms(views.reshape(len(rows) * slots, -1))
    found, worst, worst_flashinfer = 0, 0.0, 0.0
    for index in range(len(rows)):
        for slot in range(slots):
            matches = [r for r in ring.get(int(prints[index, slot]), []) if int(r[2]) == slot]
            if not matches:
                continue
            found += 1
            if by_flashinfer is not None:
                theirs = float(by_flashinfer[index * slots + slot])
                worst_flashinfer = max(worst_flashinfer, abs(matches[0][4] / theirs - 1))
            values = views[index, slot].float()
            for column, value in (
                (3, values.mean()),
                (4, values.pow(2).mean().sqrt()),
                (5, values.abs().max()),
            ):
                scale = max(abs(float(values.abs().max())), 1e-6)
                worst = max(worst, abs(matches[0][column] - float(value)) / scale)
    coverage = process.newest(StatsCoverage)
    verify = [s for s in process.of(SlotStats) if s.site == "aux_verify"]
    embedding = [
        s.slots[0].equals_embedding for s in verify if s.slots[0].equals_embedding is not None
    ]
    out.say(
        check="replay",
        run=run_.name,
        passed=found == len(rows) * slots
        and worst < 1e-2
        and worst_flashinfer < 1e-2
        and all(len(t) > 1 for t in ticks.values()),
        returned_rows=len(rows),
        slots=slots,
        matched_bit_for_bit=found,
        largest_relative_difference=worst,
        largest_relative_difference_from_flashinfer_rmsnorm=worst_flashinfer
        if by_flashinfer is not None
        else None,
        distinct_rms_per_slot={str(k): len(v) for k, v in ticks.items()},
        tapped=coverage.tapped if coverage is not None else None,
        slot0_equals_embedding_least=min(embedding) if embedding else None,
        ticks=max(s.last_tick for s in verify) + 1,
        probe_log=engine.probe_lines()[-12:],
    )
