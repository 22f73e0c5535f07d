"""The trained fixtures under CUDA graphs at level capture: drafts that accept, replayed at once.

Random drafts are refused at their first position, so only trained ones show later positions, trees
whose beams go on, and captures that a replay can be right or wrong about.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.materialise import draft_variant, materialise
from fixtures.prompts import held_out_prompts

from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import Fault

from .engines import Engine, EngineError, launch_all
from .equality import anatomy, equal_requests
from .runs import Run

NEW_TOKENS = 128
REQUESTS = 8
WITH_LAYERS = 2
REPLAY_TIMEOUT_S = 150


@dataclass(frozen=True)
class Case:
    """A fixture target with a draft; ``ids``: what the draft's config says instead, boundaries."""

    name: str
    run: Run
    draft: str
    ids: tuple[int, ...] | None = None
    draft_tokens: int | None = None
    """More than the beams can carry on: some submitted drafts are then never expanded."""

    def paths(self, place: Path) -> tuple[Path, Path]:
        """Target and draft in bfloat16, made when missing."""
        target, draft = place / f"trained-{self.run.family}", place / f"trained-{self.name}-draft"
        if not target.exists():
            materialise(self.run.family, target, dtype="bfloat16")
        if not draft.exists():
            draft_variant(self.draft, draft, aux_layer_ids=self.ids, dtype="bfloat16")
        return target, draft


CASES = (
    Case("chain", Run("v2", 1, 1, "triton", "deepseek"), "deepseek-draft-embed"),
    Case("tree", Run("v2", 1, 4, "triton", "deepseek"), "deepseek-draft-embed"),
    Case(
        "wide-tree",
        Run("v2", 1, 4, "triton", "deepseek"),
        "deepseek-draft-embed",
        draft_tokens=24,
    ),
    Case("llama-tree", Run("v2", 1, 4, "triton", "llama"), "llama-draft"),
)


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """All engines at once; trace and captures of each go into an archive beside the output."""
    engines: dict[str, Engine] = {}
    plain: Engine | None = None
    for case in CASES:
        if not case.run.is_named(options.only):
            continue
        target, draft = case.paths(place)
        arguments = case.run.arguments(str(target), str(draft))
        if case.draft_tokens is not None:
            arguments["speculative_num_draft_tokens"] = case.draft_tokens
        probe = {"level": "capture", "all_layers": str(WITH_LAYERS), "refusal_every": "1"}
        engines[case.name] = Engine(f"trained-{case.name}", arguments, place, probe=probe)
        if case.name == "llama-tree":
            plain = Engine("trained-plain", arguments, place)
    everything = [*engines.values(), *([plain] if plain else [])]
    asked = [list(p.token_ids) for p in held_out_prompts(REQUESTS)]
    try:
        failed = launch_all(everything, options.start_timeout)
        for name, error in failed.items():
            out.say(check="trained", engine=name, passed=False, error=error[-1500:])
        for case in CASES:
            engine = engines.get(case.name)
            if engine is None or not engine.ready:
                continue
            try:
                answer = engine.generate(asked, NEW_TOKENS)
                expected = None
                if case.name == "llama-tree" and plain is not None and plain.ready:
                    expected = plain.generate(asked, NEW_TOKENS)
                time.sleep(3)  # the writing thread
                say(case, engine, answer, expected, place, out)
            except EngineError as error:
                out.say(check="trained", case=case.name, passed=False, error=str(error)[-1500:])
            engine.stop()
    finally:
        for engine in everything:
            engine.stop()
    for engine in engines.values():
        keep(engine, options.out.with_name(f"{engine.name}.tar.gz"))


def say(
    case: Case,
    engine: Engine,
    answer: dict[str, Any],
    expected: dict[str, Any] | None,
    place: Path,
    out: Any,
) -> None:
    """Totals, refusals, and the replay in bfloat16 on this machine."""
    process = read(engine.traces).processes[0]
    verified = sum(m["spec_verify_ct"] for m in answer["meta"])
    correct = sum(
        m.get("spec_num_correct_drafts", m.get("spec_accepted_drafts", 0)) for m in answer["meta"]
    )
    faults = [f"{f.site}: {f.error[:160]}" for f in process.of(Fault)]
    same = None
    if expected is not None:
        same = equal_requests([answer["tokens"]], [expected["tokens"]])
    target, draft = case.paths(place)
    replayed = replay(engine.traces, draft, target, "bfloat16")
    out.say(
        check="trained",
        case=case.name,
        passed=not faults
        and same in (None, REQUESTS)
        and replayed["verdict"] in ("healthy", "weak")
        and replayed["different"] == 0,
        accept_length=round(1 + correct / verified, 4),
        rounds=verified,
        requests_equal_to_plain=same,
        faults=faults[:4],
        refusals=anatomy(process),
        replay_in_bfloat16=replayed,
        probe_log=engine.probe_lines()[-6:],
    )


def replay(traces: Path, draft: Path, target: Path, dtype: str) -> dict[str, Any]:
    """What ``replay`` says, in short."""
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "sglang_eagle3_probe.cli.main", "replay", str(traces),
            "--draft", str(draft), "--target", str(target), "--dtype", dtype, "--json",
            "--no-variations",
        ],
        capture_output=True, text=True, timeout=REPLAY_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        return {"verdict": f"exit code {done.returncode}: {done.stderr[-600:]}", "different": -1}
    found = json.loads(done.stdout)
    steps = found["as_configured"]["engine"]
    return {
        "dtype": dtype,
        "verdict": found["verdict"]["kind"],
        "sentence": found["verdict"]["sentence"],
        "compared": sum(s["compared"] for s in steps),
        "same": sum(s["same"] for s in steps),
        "ties": sum(s["ties"] for s in steps),
        "different": sum(s["compared"] - s["same"] - s["ties"] for s in steps),
        "hidden_errors": found["hidden_errors"],
        "seconds": round(time.monotonic() - began, 1),
    }


def keep(engine: Engine, archive: Path) -> None:
    """Trace and captures in one file, to be replayed elsewhere."""
    if engine.traces.exists():
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(engine.traces, arcname=engine.name)
