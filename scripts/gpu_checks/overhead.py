"""Time per verify round with the probe over without it, and what the alternatives cost.

Two Llama shapes: a small one, whose rounds are as long as SGLang's own Python takes, and a large
one, whose rounds are as long as the GPU takes. All engines are up at once; all but the one being
measured are stopped (SIGSTOP). Calls rotate between them, so that the engines of one turn see the
same minute; a ratio is the time per verify round without the probe over the time with it, in the
same turn, and equals the ratio of throughputs. Two estimates: the median of the ratios with a
bootstrap interval, and the ratio of each engine's undisturbed time (tenth percentile), since
disturbances on a shared machine only ever add time. SGLang's debug tensor dump is not among the
alternatives: with EAGLE-3 it ends the server (0.5.17: ``add_tensor`` meets a list).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.trace.cost_records import ProbeCost
from sglang_eagle3_probe.trace.reader import read

from . import models, plugins
from .engines import Engine, EngineError, wait_all
from .equality import prompts
from .own_cost import own_cost
from .runs import Run

LAYERS, HIDDEN = 16, 2048
RUN = Run("v2", 1, 1, "triton", "llama")
CALL_TOKENS = 192
TURNS_OF_ALTERNATIVES = 8
MAIN = ("off", "off_again", "wiring", "stats")


@dataclass(frozen=True)
class Shape:
    """A target of Llama shape. ``dummy``: SGLang makes its weights up, which saves writing them."""

    name: str
    layers: int
    hidden: int
    inner: int
    dummy: bool = False

    def arguments(self, place: Path) -> dict[str, Any]:
        """Target and draft are written below ``place``."""
        target, draft = place / f"llama-{self.name}", place / f"llama-{self.name}-draft"
        config = {**models.llama_config(self.layers, self.hidden), "intermediate_size": self.inner}
        if self.dummy:
            target.mkdir(parents=True)
            (target / "config.json").write_text(json.dumps(config))
        else:
            models.write(target, config, models.shapes_of(config))
        models.write_draft(draft, self.hidden, None)
        arguments = {
            **RUN.arguments(str(target), str(draft)),
            # Of what is free when an engine starts; the others' share is not.
            "mem_fraction_static": 0.95,
            "max_total_tokens": 6000,
        }
        if self.dummy:
            arguments |= {"load_format": "dummy", "speculative_draft_load_format": "auto"}
        return arguments


SHAPES = (
    Shape("small", LAYERS, HIDDEN, 2 * HIDDEN),
    Shape("large", 36, 5120, 13824, dummy=True),
)


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """Start everything, measure, report."""
    naive = plugins.python_path_with(place, "naive_copy", plugins.NAIVE_COPY)
    groups: dict[Shape, list[Engine]] = {}
    for shape in SHAPES:
        if options.only and shape.name not in options.only.split(","):
            continue
        base = shape.arguments(place)
        own = place / shape.name
        returning = {**base, "enable_return_hidden_states": True}
        every = [
            Engine("off", base, own),
            Engine("off_again", base, own),
            Engine("wiring", base, own, probe={"level": "wiring"}),
            Engine("stats", base, own, probe={"level": "stats"}),
            Engine("return_hidden_states", returning, own),
            Engine("naive_copy", base, own, environment=naive),
        ]
        wanted = options.engines.split(",") if options.engines else MAIN
        groups[shape] = [engine for engine in every if engine.name in wanted]
    engines = [engine for group in groups.values() for engine in group]
    try:
        for engine in engines:
            engine.launch()
        until = time.monotonic() + options.start_timeout
        up: dict[Shape, list[Engine]] = {}
        for shape, group in groups.items():
            failed = wait_all(group, until)
            for name, error in failed.items():
                out.say(
                    check="overhead",
                    shape=shape.name,
                    engine=name,
                    passed=False,
                    error=error[-800:],
                )
            up[shape] = [e for e in group if e.ready]
        for engine in engines:
            if engine.ready:
                engine.pause()
        while options.wait_for is not None and not options.wait_for.exists():
            time.sleep(1)
        for shape, group in up.items():
            for batch in (1, 8):
                if any(e.name == "off" for e in group):
                    measure(shape, group, batch, options.measure_s / 2 / len(up), options, out)
            for engine in group:
                if engine.probe is not None:
                    records = read(engine.traces).processes[0].of(ProbeCost)
                    out.say(
                        check="own_cost",
                        shape=shape.name,
                        engine=engine.name,
                        **own_cost(records),
                    )
    finally:
        for engine in engines:
            engine.stop()


def measure(
    shape: Shape,
    engines: list[Engine],
    batch: int,
    seconds: float,
    options: argparse.Namespace,
    out: Any,
) -> None:
    """Ratios for one batch size."""
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
    until = time.monotonic() + seconds
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
                check="overhead",
                shape=shape.name,
                batch=batch,
                engine=name,
                passed=False,
                error=str(error)[-800:],
            )
    for name, mine in times.items():
        if mine:
            out.say(
                check="overhead",
                shape=shape.name,
                layers=shape.layers,
                hidden=shape.hidden,
                batch=batch,
                engine=name,
                **summary(mine, times["off"]),
            )


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
