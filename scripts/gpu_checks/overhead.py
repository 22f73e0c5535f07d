"""Decode throughput with the probe over without it, and what the alternatives cost.

All engines are up at once; all but the one being measured are stopped (SIGSTOP). Calls alternate
between them, so each pair sees the same clocks. Ratios per pair; the median and the spread are
reported. SGLang's debug tensor dump is not among the alternatives: with EAGLE-3 it ends the server
(0.5.17: ``add_tensor`` meets a list).
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from . import models
from .engines import Engine, EngineError, launch_all
from .equality import prompts
from .runs import Run

LAYERS, HIDDEN = 16, 2048
RUN = Run("v2", 1, 1, "triton", "llama")
FEW = 3

NAIVE = """
def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def after(result, *args, **kwargs):
        hidden = result.logits_output.hidden_states
        if hidden is not None:
            hidden.float().cpu()

    HookRegistry.register(
        "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.verify", after, HookType.AFTER
    )
"""


def naive_plugin(place: Path) -> Path:
    """A plugin that copies the verify hidden states to the host in every round."""
    folder = place / "naive"
    info = folder / "naive_hook-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "naive_hook.py").write_text(NAIVE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: naive-hook\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nnaive = naive_hook:register\n")
    return folder


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """Start everything, measure, report."""
    import os

    target, draft = place / "llama16", place / "llama16-draft"
    models.write_target(target, "llama", LAYERS, HIDDEN)
    models.write_draft(draft, HIDDEN, None)
    base = RUN.arguments(str(target), str(draft))
    hook = naive_plugin(place)
    path = os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")])
    engines = [
        Engine("off", base, place),
        Engine("wiring", base, place, probe={"level": "wiring"}),
        Engine("stats", base, place, probe={"level": "stats"}),
        Engine("return_hidden_states", {**base, "enable_return_hidden_states": True}, place),
        Engine("naive_cpu_hook", base, place, environment={"PYTHONPATH": path}),
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
    """Ratios for one batch size."""
    by_name = {e.name: e for e in engines}
    asked = prompts(batch, 11)

    def speed(name: str, new_tokens: int) -> tuple[float, int]:
        hidden = name == "return_hidden_states"
        by_name[name].resume()
        answer = by_name[name].generate(asked, new_tokens, hidden=hidden)
        by_name[name].pause()
        rounds = sum(m["spec_verify_ct"] for m in answer["meta"])
        return sum(len(t) for t in answer["tokens"]) / answer["elapsed_s"], rounds

    for name in by_name:
        speed(name, 64)
    ratios: dict[str, list[float]] = {"wiring": [], "stats": [], "off_again": []}
    speeds: dict[str, list[float]] = {name: [] for name in by_name}
    for pair in range(options.pairs):
        # off .. off again: what two equal engines' calls differ by, in the same minute.
        order = ["off", "wiring", "stats", "off_again"]
        order = order if pair % 2 == 0 else order[::-1]
        seen = {n: speed(n.removesuffix("_again"), options.new_tokens)[0] for n in order}
        for name in ratios:
            ratios[name].append(seen[name] / seen["off"])
        for name in ("off", "wiring", "stats"):
            speeds[name].append(seen[name])
    for name, new_tokens in (
        ("return_hidden_states", options.new_tokens),
        ("naive_cpu_hook", options.new_tokens),
    ):
        if name not in by_name:
            continue
        try:
            ratios[name] = []
            for _ in range(FEW):
                reference = speed("off", options.new_tokens)[0]
                mine = speed(name, new_tokens)[0]
                ratios[name].append(mine / reference)
                speeds[name].append(mine)
        except EngineError as error:
            out.say(
                check="overhead", batch=batch, engine=name, passed=False, error=str(error)[-800:]
            )
    for name, values in ratios.items():
        if not values:
            continue
        ordered = sorted(values)
        out.say(
            check="overhead",
            batch=batch,
            engine=name,
            pairs=len(values),
            median_ratio=round(statistics.median(values), 4),
            lowest=round(ordered[0], 4),
            highest=round(ordered[-1], 4),
            quartiles=[round(q, 4) for q in statistics.quantiles(values, n=4)]
            if len(values) > 3
            else None,
            tokens_per_s=round(statistics.median(speeds.get(name, [0.0]) or [0.0]), 1),
        )
