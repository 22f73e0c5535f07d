"""``top DIR``: a running server on one screen."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_eagle3_probe.analysis.live import LiveRun
from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.cli.keyboard import keyboard
from sglang_eagle3_probe.cli.tail import seconds
from sglang_eagle3_probe.trace.files import TraceError, find_files
from sglang_eagle3_probe.trace.follow import Event, Follower, NewestRun

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

NEEDS_RICH = (
    "top draws with rich, which is not installed; tail works without it. "
    "Fix: pip install 'sglang-eagle3-probe[report]'"
)
NEEDS_TERMINAL = (
    "top redraws a terminal, and its output is not one; nothing was shown. "
    "Fix: --once prints one frame, tail prints lines."
)
READ_S = 0.25
"""Longest stretch of reading between two looks at the keyboard."""
CHECK_EVERY = 256
"""Events between two looks at the clock."""
FEWEST_COLUMNS, FEWEST_LINES = 80, 24
ONCE_LINES = 40


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "top",
        help="watch a running server: acceptance by position, refusals, speed of each rank",
        description="Shows the newest server run in a trace directory and keeps it up to date: "
        "acceptance by draft position in the last minute and since the start, why drafts are "
        "refused, tokens and verify rounds per second of each rank, losses. Waits for a directory "
        "that is not there yet, and follows a server that is started again. q or Ctrl-C quits.",
        epilog="exit codes: 0 shown, 2 could not run (with --once: nothing to show)",
    )
    command.add_argument("trace", type=Path, metavar="DIR", help="trace directory")
    command.add_argument(
        "--interval", type=seconds, default=1.0, metavar="S", help="seconds a frame (default 1)"
    )
    command.add_argument(
        "--once", action="store_true", help="print one frame and exit, for scripts"
    )
    command.set_defaults(run=run)


class Watch:
    """Reads the newest run of a directory, a slice at a time."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._newest = NewestRun(place)
        self._followed: set[str] = set()
        self._events: Iterator[Event] | None = None
        self._looked_s = 0.0
        self.run = LiveRun()
        self.follower = Follower(place, self._newest.holds)

    def read(self, for_s: float) -> bool:
        """Take in what there is, for about this long. True when nothing is left."""
        end_s = time.monotonic() + for_s
        if self._events is None:
            self._look()
            self._events = self.follower.poll()
        for count, event in enumerate(self._events, 1):
            self.run.add(event.process, event.record)
            if count % CHECK_EVERY == 0 and time.monotonic() >= end_s:
                return False
        self._events = None
        return True

    def _look(self) -> None:
        """Notice a server that was started again: its processes are none of those followed."""
        self._newest.look()
        now = self._newest.processes
        if self._followed and not self._followed & now:
            self.run = LiveRun()
            self.follower = Follower(self._place, self._newest.holds)
        self._followed = set(now)

    @property
    def reason_to_wait(self) -> str:
        """Why there is nothing to show; empty when there is."""
        if self.run.ranks:
            return ""
        if not self._place.exists():
            return (
                f"{self._place} is not there yet; a server started with --enable-probe makes it "
                "with its first record"
            )
        if self._newest.headless:
            return f"{self._place} holds trace files whose first line is not whole yet"
        try:
            any(self._place.iterdir())
        except OSError as error:
            return f"{self._place} cannot be read ({error.strerror or error})"
        return f"{self._place} holds no trace file yet; start a server with --enable-probe"

    def notes(self, caught_up: bool) -> list[str]:
        """Lines about the reading."""
        lines = []
        if not caught_up:
            lines.append(f"reading what was written before: {self.follower.share_read():.0%}")
        if self.follower.unread_lines:
            lines.append(f"{self.follower.unread_lines} lines could not be read (torn or damaged)")
        if self._newest.headless:
            lines.append(f"{self._newest.headless} processes left out: no whole header")
        if self._newest.older_runs:
            lines.append(f"newest of {self._newest.older_runs + 1} runs in this directory")
        return lines


def run(options: argparse.Namespace) -> int:
    """Show frames until told to stop, or one."""
    try:
        from rich.console import Console
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "rich":
            raise
        raise UsageError(NEEDS_RICH) from None
    console = Console(highlight=False, soft_wrap=False)
    watch = Watch(options.trace)
    if options.once:
        return _once(watch, options.trace)
    if not console.is_terminal:
        raise UsageError(NEEDS_TERMINAL)
    with contextlib.suppress(KeyboardInterrupt):
        _draw_until_quit(watch, options, console)
    return 0


def _once(watch: Watch, place: Path) -> int:
    from rich.console import Console

    find_files(place)  # says what is missing
    while not watch.read(READ_S):
        pass
    if watch.reason_to_wait:
        raise TraceError(f"{watch.reason_to_wait}. Fix: wait until the server has written more.")
    piped = not sys.stdout.isatty()
    console = Console(
        highlight=False,
        soft_wrap=False,
        width=FEWEST_COLUMNS if piped else None,
        height=ONCE_LINES if piped else None,
    )
    console.print(_frame(watch, place, console, caught_up=True, interactive=False))
    return 0


def _draw_until_quit(watch: Watch, options: argparse.Namespace, console: Console) -> None:
    from rich.live import Live

    with (
        keyboard() as keys,
        Live(console=console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        while True:
            caught_up = watch.read(READ_S)
            live.update(_frame(watch, options.trace, console, caught_up=caught_up), refresh=True)
            typed = keys.wait(options.interval if caught_up else 0.0)
            if "q" in typed or "Q" in typed:
                return


def _frame(
    watch: Watch, place: Path, console: Console, *, caught_up: bool, interactive: bool = True
) -> RenderableType:
    from sglang_eagle3_probe.report.top_screen import Frame, render, waiting

    reason = watch.reason_to_wait
    if reason:
        return waiting(str(place), reason, interactive=interactive)
    frame = Frame(str(place), watch.run, watch.notes(caught_up), time.time(), interactive)
    return render(frame, console.width, console.height)
