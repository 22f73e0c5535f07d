"""Faults that only a GPU server can have: a tap kernel that does not compile, graphs captured anew.

Each engine is compared, token by token, with one without the probe that lives through the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import Fault, SlotStats, StatsCoverage

from . import plugins
from .engines import Engine, EngineError, launch_all
from .equality import REQUESTS, equal_requests, model_paths, prompts
from .runs import Run

RUN = Run("v2", 1, 1, "triton", "llama")


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """Four engines at once."""
    model, draft = model_paths(place, RUN.family, stock=True)
    arguments = RUN.arguments(model, draft)
    broken = plugins.python_path_with(place, "broken_kernel", plugins.BROKEN_KERNEL)
    recapture = plugins.python_path_with(place, "recapture", plugins.RECAPTURE)
    stats = {"level": "stats"}
    engines = {
        "off": Engine("faults-off", arguments, place),
        "kernel": Engine("faults-kernel", arguments, place, probe=stats, environment=broken),
        "recapture_off": Engine("faults-recapture-off", arguments, place, environment=recapture),
        "recapture": Engine(
            "faults-recapture", arguments, place, probe=stats, environment=recapture
        ),
    }
    try:
        failed = launch_all(list(engines.values()), options.start_timeout)
        for name, error in failed.items():
            out.say(check="faults", engine=name, passed=False, error=error[-1500:])
        for fault, reference in (("kernel", "off"), ("recapture", "recapture_off")):
            pair = (engines[fault], engines[reference])
            if all(engine.ready for engine in pair):
                try:
                    compare(fault, *pair, options, out)
                except EngineError as error:
                    out.say(check="faults", fault=fault, passed=False, error=str(error)[-1500:])
    finally:
        for engine in engines.values():
            engine.stop()


def compare(
    fault: str, engine: Engine, reference: Engine, options: argparse.Namespace, out: Any
) -> None:
    """Same calls, same tokens; and what the trace says about the fault."""
    answers = {}
    for one in (engine, reference):
        one.generate(prompts(REQUESTS, 1), 64)
        one.flush()
        calls = [one.generate(prompts(REQUESTS, seed), options.new_tokens) for seed in (2, 3)]
        answers[one.name] = [call["tokens"] for call in calls]
    same = equal_requests(answers[engine.name], answers[reference.name])
    if fault == "recapture":
        # The ring is read every two seconds, and a window that began before says "mixed".
        until = time.monotonic() + 8
        while time.monotonic() < until:
            engine.generate(prompts(REQUESTS, 4), options.new_tokens)
    process = read(engine.traces).processes[0]
    faults = process.of(Fault)
    stats = process.of(SlotStats)
    coverage = process.newest(StatsCoverage)
    verify = [s for s in stats if s.site == "aux_verify"]
    seen_as_meant = bool(faults) if fault == "kernel" else not faults and bool(verify)
    recaptured = "recapture: done" in (engine.folder / "log").read_text(errors="replace")
    if fault == "recapture":
        seen_as_meant = seen_as_meant and recaptured and verify[-1].tapped == "replay"
    out.say(
        check="faults",
        fault=fault,
        passed=same == 2 * REQUESTS and seen_as_meant,
        equal_requests=same,
        of=2 * REQUESTS,
        tokens_each=options.new_tokens,
        recaptured=recaptured,
        faults=[{"site": f.site, "error": f.error[:200], "disabled": f.disabled} for f in faults],
        skipped=coverage.skipped if coverage is not None else None,
        tapped=coverage.tapped if coverage is not None else None,
        verify_windows=[[s.first_tick, s.last_tick, s.tapped, s.joined] for s in verify][-6:],
        found_in_target={s.site: s.found_in_target for s in stats if s.found_in_target is not None},
        probe_log=engine.probe_lines()[-8:],
    )
