"""A pseudo terminal with a command in it, and what a person would see."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

_ESCAPE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Terminal:
    """The command's terminal; ``screen`` is its content, by the escapes that rich writes."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process = process
        self._master = master
        self._slave = slave
        self.all = ""
        """Everything ever written."""
        self.written = ""
        """What ``screen`` is made of; empty it to see only what is drawn from now on."""
        self.columns, self.lines = 0, 0

    def resize(self, columns: int, lines: int) -> None:
        """As a terminal emulator does it: the kernel then tells the command."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.columns, self.lines = columns, lines
        os.kill(self.process.pid, signal.SIGWINCH)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def attributes(self) -> list[object]:
        """Of the terminal: echo, line editing, ..."""
        return list(termios.tcgetattr(self._slave))

    def read(self, seconds: float) -> str:
        """What is written within that time."""
        end, fresh = time.monotonic() + seconds, ""
        while (left := end - time.monotonic()) > 0:
            if self._master in select.select([self._master], [], [], left)[0]:
                try:
                    fresh += os.read(self._master, 65536).decode(errors="replace")
                except OSError:
                    break
        self.all += fresh
        self.written += fresh
        return fresh

    def until(self, words: str, seconds: float = 20) -> list[str]:
        """The screen, once it shows these words."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.1)
            shown = self.screen()
            if any(words in line for line in shown):
                return shown
        raise AssertionError(f"never saw {words!r}:\n" + "\n".join(self.screen()))

    def screen(self) -> list[str]:
        """Lines of the terminal now; the newest frame over the ones before."""
        grid: dict[tuple[int, int], str] = {}
        row = column = place = 0
        text = self.written
        while place < len(text):
            escape = _ESCAPE.match(text, place)
            if escape:
                place = escape.end()
                if escape[2] == "H":
                    row = column = 0
                elif escape[2] == "J":
                    grid.clear()
                continue
            letter = text[place]
            place += 1
            if letter == "\n":
                row, column = row + 1, 0
            elif letter == "\r":
                column = 0
            else:
                grid[row, column] = letter
                column += 1
        return [
            "".join(grid.get((r, c), " ") for c in range(self.columns)).rstrip()
            for r in range(self.lines)
        ]

    def end(self, seconds: float = 20) -> int:
        """Its exit code; reads on, since it may not end before its words are taken."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end"
            self.read(0.05)
        self.read(0.1)
        return int(self.process.returncode)


@contextlib.contextmanager
def terminal(
    command: Sequence[str], environment: Mapping[str, str], columns: int = 80, lines: int = 24
) -> Iterator[Terminal]:
    """Run a command on a pseudo terminal of its own, as its controlling terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    plain = {k: v for k, v in environment.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        list(command),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**plain, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
        preexec_fn=own_terminal,
    )
    shown = Terminal(process, master, slave)
    shown.columns, shown.lines = columns, lines
    try:
        yield shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
        os.close(slave)
