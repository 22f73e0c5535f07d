"""``tail DIR``: follows a running server."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.analysis.acceptance import from_outcomes
from sglang_eagle3_probe.cli.events import describe
from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.follow import Event, Follower
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Footer, Header, Progress, SlotStats, StatsCoverage
from sglang_eagle3_probe.trace.rounds import Outcome


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "tail",
        help="follow a running server: wiring as it is found, accept length as it rolls",
        description="Prints wiring events as they are written and a rolling accept length. Waits "
        "for the directory if it is not there yet. Stop with Ctrl-C.",
    )
    command.add_argument("trace", type=Path, metavar="DIR", help="trace directory")
    command.add_argument(
        "--window", type=seconds, default=30.0, metavar="S", help="seconds averaged (default 30)"
    )
    command.add_argument(
        "--every", type=seconds, default=5.0, metavar="S", help="seconds between lines (default 5)"
    )
    command.add_argument(
        "--until-end", action="store_true", help="stop when every process has written its footer"
    )
    command.set_defaults(run=run)


class Rolling:
    """Outcomes of the last seconds, of one process per data-parallel group."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._recent: deque[tuple[float, Outcome]] = deque()
        self._groups: dict[str, tuple[int, int]] = {}
        self._chosen: dict[int, str] = {}

    def header(self, process: str, header: Header) -> None:
        """Learn which processes see the same rounds: tensor-parallel ranks all do."""
        group, rank = header.ranks.dp_rank or 0, header.ranks.tp_rank or 0
        self._groups[process] = (group, rank)
        chosen = self._chosen.get(group)
        if chosen is None or rank < self._groups[chosen][1] or _restarted(chosen, process, rank):
            self._chosen[group] = process

    def add(self, process: str, record: VerifyRound) -> None:
        """Count a record's requests, unless another rank stands for this one."""
        group = self._groups.get(process, (0, 0))[0]
        if self._chosen.setdefault(group, process) != process:
            return
        for correct in record.correct_drafts:
            if 0 <= correct <= record.steps:
                self._recent.append((record.wall_s, (record.steps, correct)))

    def line(self, now_s: float) -> str:
        """One line about the window that ends now."""
        while self._recent and self._recent[0][0] < now_s - self._window_s:
            self._recent.popleft()
        counts: Counter[Outcome] = Counter(outcome for _, outcome in self._recent)
        seen = from_outcomes(counts, requests=0)
        if seen.accept_length is None:
            return f"no verify round in the last {self._window_s:g} s"
        interval = seen.accept_length_interval
        spread = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else ""
        rates = ", ".join("-" if r.share is None else f"{r.share:.2f}" for r in seen.unconditional)
        return (
            f"accept length {seen.accept_length:.2f}{spread}, by position {rates}, "
            f"{seen.rounds} rounds in {self._window_s:g} s"
        )


def _restarted(chosen: str, process: str, rank: int) -> bool:
    # The same rank under another process id: the server was started again in this directory.
    return chosen != process and f"-tp{rank}-" in chosen and f"-tp{rank}-" in process


class Repeats:
    """Keeps lines that every window repeats from filling the screen."""

    def __init__(self, again_after_s: float) -> None:
        self._again_after_s = again_after_s
        self._said: dict[tuple[str, str], float] = {}

    def worth_a_line(self, process: str, record: Record) -> bool:
        """The first one at once, then one per interval."""
        if isinstance(record, SlotStats) and any(slot.nonfinite for slot in record.slots):
            key = (process, record.site)
        elif isinstance(record, StatsCoverage):
            key = (process, str(sorted((s, tuple(r)) for s, r in record.skipped.items())))
        else:
            return True
        last = self._said.get(key)
        if last is not None and record.wall_s < last + self._again_after_s:
            return False
        self._said[key] = record.wall_s
        return True


def run(options: argparse.Namespace) -> int:
    """Follow until interrupted."""
    try:
        _follow(options)
    except KeyboardInterrupt:
        print()
    return 0


def _follow(options: argparse.Namespace) -> None:
    if not options.trace.exists():
        print(f"{options.trace} is not there yet; waiting for the server", file=sys.stderr)
    follower, rolling = Follower(options.trace), Rolling(options.window)
    repeats = Repeats(options.window)
    running: set[str] = set()
    rounds = False
    next_line_s = time.monotonic() + options.every
    seen_any = False
    while True:
        for event in follower.poll():
            seen_any = True
            rounds = _take(event, rolling, running, repeats) or rounds
        finished = options.until_end and seen_any and not running
        if (time.monotonic() >= next_line_s or finished) and rounds:
            now_s = time.time()
            print(f"{_clock(now_s)} {rolling.line(now_s)}", flush=True)
            next_line_s = time.monotonic() + options.every
        if finished:
            return
        time.sleep(min(0.5, options.every))


def _take(event: Event, rolling: Rolling, running: set[str], repeats: Repeats) -> bool:
    """Print what is worth a line. True for a verify round."""
    record = event.record
    if isinstance(record, VerifyRound):
        rolling.add(event.process, record)
        return True
    if isinstance(record, Header):
        running.add(event.process)
        rolling.header(event.process, record)
        if record.part:
            return False
    if isinstance(record, Footer):
        running.discard(event.process)
    if isinstance(record, Progress) or not repeats.worth_a_line(event.process, record):
        return False
    for line in describe(record):
        print(f"{_clock(record.wall_s)} {_short(event.process)} {line}", flush=True)
    return False


def _clock(wall_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(wall_s))


def _short(process: str) -> str:
    """``scheduler tp0`` from ``probe-scheduler-tp0-pid7``."""
    words = [w for w in process.split("-") if w != "probe" and not w.startswith("pid")]
    return " ".join(words)


def seconds(text: str) -> float:
    """An argument that is a time."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
