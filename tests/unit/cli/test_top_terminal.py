"""``top`` on a terminal: keys, sizes, and that it leaves the terminal as it found it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from terminal import Terminal, terminal
from test_top import COMMAND, append, head, samples, trace_file

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def opened(place: Path, *words: str) -> AbstractContextManager[Terminal]:
    return terminal([*COMMAND, str(place), "--interval", "0.2", *words], os.environ)


def left_as_found(window: Terminal, before: list[object]) -> None:
    assert window.all.count(ENTER) == window.all.count(LEAVE) == 1
    assert window.all.rindex(SHOW) > window.all.rindex(HIDE)
    assert window.attributes() == before
    assert "Traceback" not in window.all


def test_a_session(tmp_path: Path) -> None:
    place = tmp_path / "traces"
    with opened(place) as window:
        before = window.attributes()
        window.until("waiting: ")
        file = trace_file(place)
        append(file, head(), *samples.clean(40))
        shown = window.until("since start (40)")
        assert any("q quits" in line for line in shown)
        append(file, *samples.rounds(25))
        window.until("since start (65)")

        # Larger, smaller, and back: each time the whole screen is right, with nothing left over.
        window.resize(132, 40)
        window.until("+ LlamaForCausalLMEagle3")  # there is room for it now
        window.written = ""
        window.resize(60, 16)
        window.read(0.8)
        small = window.screen()
        assert small[0].endswith("…")
        assert any("scheduler tp0" in line for line in small)
        assert "\x1b[2J" not in window.written  # redrawn in place: no flicker
        window.resize(80, 24)
        window.written = ""
        window.until("since start (65)")

        # The server is started again.
        append(trace_file(place, pid=8), head(), *samples.clean(5))
        window.until("since start (5)")
        window.until("newest of 2 runs")
        # Ctrl-Z would leave the shell with another screen; other keys do nothing.
        window.type("x\x1a")
        window.written = ""
        window.until("since start (5)")
        window.type("q")
        assert window.end() == 0
        left_as_found(window, before)


@pytest.mark.parametrize("way", ["q", "\x03", "SIGTERM", "SIGINT"])
def test_ways_to_leave(tmp_path: Path, way: str) -> None:
    append(trace_file(tmp_path), head(), *samples.clean(10))
    with opened(tmp_path) as window:
        before = window.attributes()
        window.until("since start (10)")
        assert window.attributes() != before  # keys arrive one by one
        if way.startswith("SIG"):
            window.process.send_signal(getattr(signal, way))
        else:
            window.type(way)
        assert window.end() == (143 if way == "SIGTERM" else 0)
        left_as_found(window, before)


def test_a_key_is_answered_at_once(tmp_path: Path) -> None:
    append(trace_file(tmp_path), head(), *samples.clean(10))
    with opened(tmp_path, "--interval", "600") as window:
        window.until("since start (10)")
        window.resize(100, 30)
        window.read(1.5)
        assert len(window.screen()[0]) <= 100
        assert any("since start (10)" in line for line in window.screen())
        window.type("q")
        assert window.end(5) == 0


def test_frames_are_written_whole(tmp_path: Path) -> None:
    """The cursor goes home and every line is written over: never a cleared screen in between."""
    append(trace_file(tmp_path), head(), *samples.clean(10))
    with opened(tmp_path) as window:
        window.until("since start (10)")
        window.written = ""
        window.read(1.5)
        frames = window.written.split("\x1b[H")
        assert len(frames) >= 4
        assert "\x1b[2J" not in window.written
        assert "\x1b[K" not in window.written
        for frame in frames[1:-1]:
            assert frame.count("\n") == 23
