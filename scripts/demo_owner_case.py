#!/usr/bin/env python3
"""Serves the owner's case mis-wired, then right, and shows what the probe said of each.

A draft was trained on cat(embedding, layer 2 out, layer 5 out) and is served three layer outputs
instead. Real SGLang on the CPU rig (tests/rig): slow kernels, true wiring. Run by scripts/demo.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fixtures.materialise import draft_variant, materialise  # noqa: E402
from fixtures.prompts import held_out_prompts  # noqa: E402
from rich.console import Console  # noqa: E402
from rig.server import RigServer, RigServerError  # noqa: E402

from sglang_eagle3_probe.report.comparison import side_by_side  # noqa: E402
from sglang_eagle3_probe.trace.reader import read  # noqa: E402

PROMPTS = 8
NEW_TOKENS = 96
MISWIRED_IDS = [3, 6, 9]


@dataclass
class Served:
    """What one server did with the prompts."""

    tokens: list[tuple[int, ...]]
    rounds: int
    correct_drafts: int
    traces: Path

    @property
    def accept_length(self) -> float:
        """Tokens per verify round, bonus included."""
        return 1 + self.correct_drafts / self.rounds


class Waiting:
    """Progress of a start: one line on a terminal, one every ten seconds elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._next_s = 0.0

    def __call__(self, _last_log_line: str) -> None:
        elapsed_s = time.monotonic() - self._began
        if _tty():
            print(f"{self._what}: {elapsed_s:.0f} s", end="\r", flush=True)
        elif elapsed_s >= self._next_s:
            say(f"{self._what}: {elapsed_s:.0f} s")
            self._next_s += 10


def say(text: str = "") -> None:
    print(text, flush=True)


def serve(name: str, target: Path, draft: Path, place: Path, prompts: list[list[int]]) -> Served:
    """Start a server with the probe, generate, stop it."""
    command = (
        "sglang serve ... --speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        f"--enable-probe --probe-dir {shown(place)}/traces"
    )
    say(f"\n$ {command}")
    began = time.monotonic()
    with RigServer(
        target,
        draft,
        steps=3,
        topk=1,
        entry="serve",
        extra_args=["--enable-probe", "--probe-dir", str(place / "traces")],
        log_file=place / "server.log",
        progress=Waiting(f"  starting SGLang ({name})"),
    ) as server:
        say(f"  server {name} is up after {time.monotonic() - began:.0f} s; what the probe logged:")
        for line in server.log_file.read_text(errors="replace").splitlines():
            if "eagle3-probe: " in line:
                say("    " + line.split("eagle3-probe: ", 1)[1])
        say(f"  generating {len(prompts)} x {NEW_TOKENS} tokens, greedy ...")
        began = time.monotonic()
        answers = server.generate(prompts, max_new_tokens=NEW_TOKENS)
        say(f"  done in {time.monotonic() - began:.0f} s")
        # The probe writes on a thread of its own, and the server is about to be killed.
        time.sleep(1)
    return Served(
        tokens=[a.output_ids for a in answers],
        rounds=sum(a.meta_info["spec_verify_ct"] for a in answers),
        correct_drafts=sum(a.meta_info["spec_num_correct_drafts"] for a in answers),
        traces=place / "traces",
    )


def shown(path: Path) -> str:
    """A path as a reader would type it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _tty() -> bool:
    return sys.stdout.isatty()


def demonstrate(place: Path) -> int:
    """Both servers, both reports, the gain. Returns the exit code."""
    if place.exists():
        shutil.rmtree(place)
    target = materialise("deepseek", place / "models" / "target")
    right = materialise("deepseek-draft-embed", place / "models" / "draft")
    wrong = draft_variant(
        "deepseek-draft-embed", place / "models" / "draft-miswired", aux_layer_ids=MISWIRED_IDS
    )
    prompts = [list(prompt.token_ids) for prompt in held_out_prompts(PROMPTS)]
    say("A DeepSeek-V3-shaped target and an EAGLE-3 draft, both trained, served by real SGLang on")
    say("this machine's CPU. The draft was trained on cat(embedding, layer 2 out, layer 5 out).")
    say("Its config was edited on the way, and it is served three layer outputs:")
    say(f'  "eagle_aux_hidden_state_layer_ids": {MISWIRED_IDS}')
    miswired = serve("mis-wired", target, wrong, place / "1-miswired", prompts)
    say("\nNothing crashed, the text is right, and few drafts are accepted. Now the list that it")
    say('was trained on, "eagle_aux_hidden_state_layer_ids": [-1, 2, 5]. Stock SGLang dies of the')
    say("-1; with the probe it means the embedding:")
    wired = serve("right", target, right, place / "2-right", prompts)

    say(f"\n$ sglang-eagle3-probe report {shown(miswired.traces)} {shown(wired.traces)}\n")
    width = Console().width if _tty() else 140
    side_by_side(
        [("mis-wired", read(miswired.traces)), ("right", read(wired.traces))],
        Console(width=width),
    )
    same = miswired.tokens == wired.tokens
    say(f"accept length {miswired.accept_length:.2f} -> {wired.accept_length:.2f}")
    say(
        f"verify rounds for the same {PROMPTS * NEW_TOKENS} tokens: "
        f"{miswired.rounds} -> {wired.rounds} ({1 - wired.rounds / miswired.rounds:.0%} fewer)"
    )
    say(f"output tokens of both servers: {'identical' if same else 'DIFFERENT'}")
    say(f"servers' logs, traces and models: {shown(place)}/")
    return 0 if same and wired.accept_length > miswired.accept_length else 1


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/demo")
    parser.add_argument(
        "--dir",
        type=Path,
        default=ROOT / "demo-logs",
        help="where logs and traces go; a folder of this name is replaced (default: demo-logs)",
    )
    options = parser.parse_args()
    place = options.dir.resolve()
    if place.exists() and not (place / "models").is_dir() and any(place.iterdir()):
        parser.error(f"{place} holds something else. Fix: name a new folder with --dir.")
    try:
        return demonstrate(place)
    except RigServerError as error:
        print(f"error: {error}\nThe server's log is under {place}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
