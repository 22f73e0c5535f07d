"""What the probe costs by clocks inside the servers: its own on the host, CUDA events on the GPU.

Two servers that are equal differ by some per cent on a shared machine, so half a per cent is looked
for where it is spent: our time on the scheduler's thread (``probe_cost`` records), and the device
time of each phase, which holds the taps that are part of the graphs (``phase_times`` records).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

from sglang_eagle3_probe.trace.acceptance_records import PhaseTimes
from sglang_eagle3_probe.trace.cost_records import ProbeCost
from sglang_eagle3_probe.trace.reader import read

from . import models
from .engines import Engine, EngineError, wait_all
from .equality import at_each_level, compare, model_paths, prompts
from .overhead import HIDDEN, LAYERS
from .own_cost import own_cost
from .runs import Run

LLAMA = Run("v2", 1, 1, "triton", "llama")
TREE = Run("v2", 1, 4, "triton", "deepseek")
STEADY_TOKENS = 1024


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """All engines at once; tokens compared first, then steady decoding one engine at a time."""
    target, draft = place / "llama16", place / "llama16-draft"
    models.write_target(target, "llama", LAYERS, HIDDEN)
    models.write_draft(draft, HIDDEN, None)
    paths = {LLAMA: (str(target), str(draft)), TREE: model_paths(place, "deepseek", stock=True)}
    groups = {
        run_: at_each_level(run_.arguments(*paths[run_]), place / run_.name)
        for run_ in (LLAMA, TREE)
        if run_.is_named(options.only)
    }
    everything = [engine for engines in groups.values() for engine in engines]
    until = time.monotonic() + options.start_timeout
    try:
        for engine in everything:
            engine.launch()
        for run_, engines in groups.items():
            waiting = [engine for engine in engines if not engine.ready]
            failed = wait_all(waiting, until)
            if failed:
                out.say(check="costs", run=run_.name, passed=False, not_started=failed)
                continue
            try:
                compare(run_, engines, options, out)
                for engine in everything:
                    # Idle schedulers poll, and would take cores from the one that is measured.
                    if engine.ready:
                        engine.pause()
                for batch in (1, 8):
                    for engine in engines[1:]:
                        steady(run_, engine, batch, options, out)
            except EngineError as error:
                out.say(check="costs", run=run_.name, passed=False, error=str(error)[-1500:])
            for engine in engines:
                engine.stop()
                engine.ready = False
            for engine in everything:
                if engine.ready:
                    engine.resume()
    finally:
        for engine in everything:
            engine.stop()


def steady(run_: Run, engine: Engine, batch: int, options: argparse.Namespace, out: Any) -> None:
    """Decode for a while; only records of that time count."""
    asked = prompts(batch, 21)
    engine.resume()
    engine.generate(asked, 64)
    began, speeds = time.time(), []
    while time.time() - began < options.steady_s:
        answer = engine.generate(asked, STEADY_TOKENS)
        rounds = max(m["spec_verify_ct"] for m in answer["meta"])
        speeds.append(answer["elapsed_s"] * 1e3 / rounds)
    ended = time.time()
    time.sleep(2.0)
    engine.pause()
    process = read(engine.traces).processes[0]
    # A record tells of the time before it.
    costs = [r for r in process.of(ProbeCost) if began + r.window_s < r.wall_s <= ended + 0.5]
    times = [r for r in process.of(PhaseTimes) if began + 1.5 < r.wall_s <= ended + 0.5]
    phases: dict[str, list[float]] = {}
    for times_record in times:
        for phase in times_record.phases:
            if phase.batch_size == batch:
                phases.setdefault(phase.phase, []).append(phase.median_ms)
    out.say(
        check="costs",
        run=run_.name,
        level=engine.name,
        batch=batch,
        seconds=round(ended - began, 1),
        round_ms_by_call=[round(s, 3) for s in speeds],
        **own_cost(costs),
        device_median_ms={
            name: [round(median(values), 4), round(min(values), 4), round(max(values), 4)]
            for name, values in phases.items()
        },
        clocks=sorted({r.clock for r in times}),
        not_timed=sum(r.not_timed for r in times),
    )
