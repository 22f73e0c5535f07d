"""Time per verify round with the probe over without it, and what the alternatives cost.

All engines are up at once; all but the one being measured are stopped (SIGSTOP). Short calls rotate
between them, so that the engines of one turn see the same minute; a ratio is the time per verify
round without the probe over the time with it, in the same turn, and equals the ratio of
throughputs. Two estimates: the median of the ratios with a bootstrap interval, and the ratio of
each engine's undisturbed time (tenth percentile), since disturbances on a shared machine only ever
add time. SGLang's debug tensor dump is not among the alternatives: with EAGLE-3 it ends the server
(0.5.17: ``add_tensor`` meets a list).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Any

from . import models, plugins
from .engines import Engine, EngineError, launch_all
from .equality import prompts
from .runs import Run

LAYERS, HIDDEN = 16, 2048
RUN = Run("v2", 1, 1, "triton", "llama")
CALL_TOKENS = 96
TURNS_OF_ALTERNATIVES = 8
MAIN = ("off", "off_again", "wiring", "stats")


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """Start everything, measure, report."""
    target, draft = place / "llama16", place / "llama16-draft"
    models.write_target(target, "llama", LAYERS, HIDDEN)
    models.write_draft(draft, HIDDEN, None)
    base = RUN.arguments(str(target), str(draft))
    naive = plugins.python_path_with(place, "naive_copy", plugins.NAIVE_COPY)
    engines = [
        Engine("off", base, place),
        Engine("off_again", base, place),
        Engine("wiring", base, place, probe={"level": "wiring"}),
        Engine("stats", base, place, probe={"level": "stats"}),
        Engine("return_hidden_states", {**base, "enable_return_hidden_states": True}, place),
        Engine("naive_copy", base, place, environment=naive),
    ]
    try:
        failed = launch_all(engines, options.start_timeout)
        for name, error in failed.items():
            out.say(check="overhead", engine=name, passed=False, error=error[-800:])
        up = [e for e in engines if e.name not in failed]
        for engine in up:
            engine.pause()
        for batch in (1, 8):
            measure(up, batch, options, out)
    finally:
        for engine in engines:
            engine.stop()


def measure(engines: list[Engine], batch: int, options: argparse.Namespace, out: Any) -> None:
    """Ratios for one batch size, within half of the time given."""
    by_name = {e.name: e for e in engines}
    asked = prompts(batch, 11)

    def round_ms(name: str) -> float:
        hidden = name == "return_hidden_states"
        by_name[name].resume()
        try:
            answer = by_name[name].generate(asked, CALL_TOKENS, hidden=hidden)
        finally:
            by_name[name].pause()
        rounds = max(m["spec_verify_ct"] for m in answer["meta"])
        return float(answer["elapsed_s"] * 1e3 / rounds)

    for name in by_name:
        round_ms(name)
        round_ms(name)
    times: dict[str, list[float]] = {name: [] for name in by_name}
    main = [name for name in MAIN if name in by_name]
    until = time.monotonic() + options.measure_s / 2
    turn = 0
    while time.monotonic() < until and turn < options.pairs:
        order = main[turn % len(main) :] + main[: turn % len(main)]
        for name in order if turn % 2 == 0 else order[::-1]:
            times[name].append(round_ms(name))
        turn += 1
    for name in by_name:
        if name in MAIN:
            continue
        try:
            times[name] = [round_ms(name) for _ in range(TURNS_OF_ALTERNATIVES)]
        except EngineError as error:
            out.say(
                check="overhead", batch=batch, engine=name, passed=False, error=str(error)[-800:]
            )
    for name, mine in times.items():
        if mine:
            out.say(check="overhead", batch=batch, engine=name, **summary(mine, times["off"]))


def summary(mine: list[float], off: list[float]) -> dict[str, Any]:
    """Both estimates, with their spread, of ``off`` over ``mine`` (1.0: no cost)."""
    said: dict[str, Any] = {
        "calls": len(mine),
        "round_ms_median": round(statistics.median(mine), 3),
        "round_ms_tenth_percentile": round(low(mine), 3),
        "undisturbed_ratio": round(low(off) / low(mine), 4),
    }
    if len(mine) == len(off):
        ratios = [a / b for a, b in zip(off, mine, strict=True)]
        draw = random.Random(0)
        medians = sorted(
            statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(1000)
        )
        said["median_ratio"] = round(statistics.median(ratios), 4)
        said["median_ratio_95"] = [round(medians[25], 4), round(medians[974], 4)]
        said["ratio_quartiles"] = [round(q, 4) for q in statistics.quantiles(ratios, n=4)]
        lows = sorted(
            low(draw.choices(off, k=len(off))) / low(draw.choices(mine, k=len(mine)))
            for _ in range(1000)
        )
        said["undisturbed_ratio_95"] = [round(lows[25], 4), round(lows[974], 4)]
    return said


def low(values: list[float]) -> float:
    """Tenth percentile."""
    return sorted(values)[len(values) // 10]
