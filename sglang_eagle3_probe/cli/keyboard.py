"""Single key presses and changes of the terminal's size, without threads."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

try:
    import termios
    import tty
except ImportError:  # no such terminals on this system: Ctrl-C is the only key then
    termios = None  # type: ignore[assignment]


class Keyboard:
    """Keys that were pressed. ``wait`` also returns early when the terminal changed its size."""

    def __init__(self, keys: int | None, wake: int | None) -> None:
        self._keys = keys
        self._wake = wake

    def wait(self, seconds: float) -> str:
        """What was typed within that time, as soon as it is; empty otherwise."""
        watched = [fd for fd in (self._keys, self._wake) if fd is not None]
        if not watched:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 512)
        if self._keys not in ready:
            return ""
        typed = os.read(self._keys, 64)
        if not typed:
            self._keys = None  # the terminal's other end is gone
        return typed.decode(errors="replace")


@contextlib.contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys as they are pressed, and leave the terminal as it was, whatever happens.

    SIGTERM ends the block like an exception would; Ctrl-C still raises ``KeyboardInterrupt``.
    """
    if termios is None:
        yield Keyboard(None, None)
        return
    fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    before = None if fd is None else termios.tcgetattr(fd)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    handlers: dict[int, Any] = {
        signal.SIGWINCH: lambda *_: None,  # a handler must exist for the wake-up to be written
        signal.SIGTERM: _leave,
        signal.SIGHUP: _leave,
        signal.SIGTSTP: signal.SIG_IGN,  # stopped, it would leave the alternate screen behind
    }
    old_handlers = {number: signal.signal(number, new) for number, new in handlers.items()}
    old_wake = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        if fd is not None:
            tty.setcbreak(fd)
        yield Keyboard(fd, reader)
    finally:
        signal.set_wakeup_fd(old_wake)
        for number, old in old_handlers.items():
            signal.signal(number, old)
        if fd is not None and before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSADRAIN, before)
        os.close(reader)
        os.close(writer)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
