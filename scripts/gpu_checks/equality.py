"""Greedy tokens with the probe off, at level wiring and at level stats, engine by engine."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestEnd
from sglang_eagle3_probe.trace.process_trace import ProcessTrace
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import Fault, LayerIds, SlotStats, StatsCoverage

from . import models
from .engines import Engine, EngineError, wait_all
from .runs import COVERING, Run

REQUESTS = 8
PROMPT_TOKENS = 64
SHAPES = {"llama": (8, 2048), "deepseek": (8, 2048)}
IDS = [-1, 2, 4]


def prompts(count: int, seed: int) -> list[list[int]]:
    """Random token ids, none special."""
    choice = random.Random(seed)
    return [
        [choice.randrange(10, models.VOCAB) for _ in range(PROMPT_TOKENS)] for _ in range(count)
    ]


def model_paths(place: Path, family: str, *, stock: bool) -> tuple[str, str]:
    """Target and draft folders, made when missing.

    ``stock``: ids that unpatched SGLang can capture too.
    """
    layers, hidden = SHAPES[family]
    target, draft = place / family, place / f"{family}-draft"
    if not target.exists():
        models.write_target(target, family, layers, hidden)
    if not draft.exists():
        models.write_draft(draft, hidden, [2, 3, 5] if stock else IDS)
    return str(target), str(draft)


def at_each_level(arguments: dict[str, Any], folder: Path) -> list[Engine]:
    """The same engine without the probe, at level wiring and at level stats."""
    # Engines of other runs, started at the same time, take unequal shares of the GPUs' memory.
    unchecked = {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
    return [
        Engine(level, arguments, folder, probe=probe, environment=unchecked)
        for level, probe in (
            ("off", None),
            ("wiring", {"level": "wiring"}),
            ("stats", {"level": "stats"}),
        )
    ]


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """All covering runs of this worker generation and TP size, engines side by side."""
    chosen = [
        r
        for r in COVERING
        if r.worker == options.worker and options.tp in (0, r.tp) and r.is_named(options.only)
    ]
    # flashinfer's kernels compile for minutes: meanwhile the others are checked.
    chosen.sort(key=lambda r: r.backend != "triton")
    started = {
        r: at_each_level(r.arguments(*model_paths(place, r.family, stock=True)), place / r.name)
        for r in chosen
    }
    everything = [engine for engines in started.values() for engine in engines]
    until = time.monotonic() + options.start_timeout
    try:
        for engine in everything:
            engine.launch()
        for chosen_run, engines in started.items():
            failed = wait_all(engines, until)
            if failed:
                out.say(check="equality", run=chosen_run.name, passed=False, not_started=failed)
            try:
                if engines[0].ready:
                    compare(chosen_run, [e for e in engines if e.ready], options, out)
            except EngineError as error:
                out.say(
                    check="equality", run=chosen_run.name, passed=False, error=str(error)[-1500:]
                )
            for engine in engines:
                engine.stop()
    finally:
        for engine in everything:
            engine.stop()


def compare(run_: Run, engines: list[Engine], options: argparse.Namespace, out: Any) -> None:
    """The same sequence of calls on each engine."""
    tokens: dict[str, list[list[list[int]]]] = {}
    meta: dict[str, Any] = {}
    for engine in engines:
        answers = []
        engine.generate(prompts(2, 1), 16)
        for seed in (2, 3):
            engine.flush()
            answers.append(engine.generate(prompts(REQUESTS, seed), options.new_tokens))
        tokens[engine.name] = [a["tokens"] for a in answers]
        meta[engine.name] = answers[-1]["meta"]
    for engine in engines[1:]:
        same = equal_requests(tokens[engine.name], tokens["off"])
        out.say(
            check="equality",
            run=run_.name,
            level=engine.name,
            passed=same == 2 * REQUESTS,
            equal_requests=same,
            of=2 * REQUESTS,
            tokens_each=options.new_tokens,
            **trace_facts(engine),
        )
        first = read(engine.traces).processes[0]
        out.say(check="refusals", run=run_.name, level=engine.name, **anatomy(first))


def equal_requests(calls: list[list[list[int]]], others: list[list[list[int]]]) -> int:
    """Requests with the same tokens in both. calls: call -> request -> tokens."""
    return sum(
        mine == theirs
        for call, other in zip(calls, others, strict=True)
        for mine, theirs in zip(call, other, strict=True)
    )


def trace_facts(engine: Engine) -> dict[str, Any]:
    """What the trace of an engine says, one entry per rank where it matters."""
    trace = read(engine.traces)
    facts: dict[str, Any] = {
        "ranks": len(trace.processes),
        "faults": sorted(
            {f"{f.site}: {f.error[:160]}" for p in trace.processes for f in p.of(Fault)}
        )[:5],
        "boundaries": [
            [s.boundary for s in p.newest(LayerIds).slots]  # type: ignore[union-attr]
            for p in trace.processes
            if p.newest(LayerIds) is not None
        ],
        "rounds": [sum(p.rounds.outcomes.values()) for p in trace.processes],
    }
    coverage = trace.processes[0].newest(StatsCoverage)
    if coverage is not None:
        facts["tapped"] = coverage.tapped
        facts["skipped"] = coverage.skipped
        facts["ring_bytes"] = coverage.ring_bytes
        stats = [p.of(SlotStats) for p in trace.processes]
        facts["lost_ticks"] = sum(s.lost_ticks for p in stats for s in p)
        facts["unjoined_windows"] = sum(not s.joined for p in stats for s in p)
        facts["found_in_target"] = shares(stats[0])
        if len(stats) > 1:
            facts |= rank_agreement(stats)
    return facts


def anatomy(process: ProcessTrace) -> dict[str, Any]:
    """What the trace says of refused drafts and of requests."""
    refusals = process.of(Refusals)
    ranks = [rank for record in refusals for rank in record.ranks]
    known = sorted(rank for rank in ranks if rank is not None)
    matches = [m for record in refusals for m in record.target_argmax_matches]
    return {
        "refusals": len(ranks),
        "ranks_known": len(known),
        "least_rank": known[0] if known else None,
        "median_rank": known[len(known) // 2] if known else None,
        "greatest_rank": known[-1] if known else None,
        "unexpanded": sum(flag for record in refusals for flag in record.unexpanded),
        "argmax_matches": {str(k): matches.count(k) for k in (True, False, None)},
        "requests_ended": len(process.of(RequestEnd)),
    }


def shares(stats: list[SlotStats]) -> dict[str, float]:
    """Least share of draft input rows found among the target's, per site."""
    least: dict[str, float] = {}
    for record in stats:
        if record.found_in_target is not None:
            least[record.site] = min(least.get(record.site, 1.0), record.found_in_target)
    return least


def rank_agreement(stats: list[list[SlotStats]]) -> dict[str, int]:
    """Ticks whose digests are equal, or differ, between the first two ranks."""
    digests = [
        {(s.site, tick): d for s in rank for tick, d in s.tick_digests.items()}
        for rank in stats[:2]
    ]
    both = digests[0].keys() & digests[1].keys()
    equal = sum(digests[0][k] == digests[1][k] for k in both)
    differing = sorted({k[0] for k in both if digests[0][k] != digests[1][k]})
    return {"ticks_equal": equal, "ticks_differ": len(both) - equal, "sites_differ": differing}  # type: ignore[dict-item]
