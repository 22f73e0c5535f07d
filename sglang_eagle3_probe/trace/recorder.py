"""Takes records on the scheduler's thread and writes them on another.

The hand-off is a few attribute stores and one append to a bounded queue: no lock, no I/O, no
logging, no exception. Everything slow or fallible happens on a daemon thread (``trace.writer``).
What is lost is counted, by record type, and the counts are in the trace itself.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing.util
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Fault, Header, Losses, Progress
from sglang_eagle3_probe.trace.writer import TRAFFIC, LossBook, Writer, record_type

WIRING_RESERVE = 512
"""Places in the queue beyond its limit that only wiring records may use: a burst of verify rounds
must not push out the record that explains them."""
BATCH = 512
"""Records per write. About a millisecond of work, after which the write lets other threads run: the
scheduler's thread must not wait for Python's lock for long."""


class Recorder:
    """One process's trace. Safe to call from any thread, and after a fork."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        role: str,
        header_factory: Callable[[], Header],
        *,
        queue_records: int = 8192,
        file_bytes: int = 64 * 1024 * 1024,
        max_files: int = 4,
        progress_s: float = 5.0,
    ) -> None:
        """Does no I/O; the file is made when the first record is written.

        Args:
            directory: Made if missing.
            role: ``scheduler`` or ``main``; part of the file name.
            header_factory: Called once, on the writer thread, before the first line is written. It
                must not touch the device.
            queue_records: Verify rounds waiting for the writer at most.
            file_bytes: A part that grows past this is continued in a new one.
            max_files: Parts kept, at least 2: the first and the newest.
            progress_s: Seconds between ``progress`` records while records flow.
        """
        self._directory = Path(directory)
        self._role = role
        self._header_factory = header_factory
        self._limit = queue_records
        self._half = queue_records // 2
        self._file_bytes = file_bytes
        self._max_files = max_files
        self._progress_s = progress_s
        self._start_fresh()
        if hasattr(os, "register_at_fork"):
            reference = weakref.ref(self)

            def after_fork() -> None:
                recorder = reference()
                if recorder is not None:
                    recorder._start_fresh()

            os.register_at_fork(after_in_child=after_fork)

    def _start_fresh(self) -> None:
        """Also runs in a forked child: its parent's queue, thread and files are not its own."""
        self._queue: deque[Record] = deque()
        self._sequence = itertools.count()
        self._book = LossBook()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._closing = False
        self._close_reason = ""
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._writer: Writer | None = None
        self._start_again_s = 0.0

    # -- the scheduler's thread ---------------------------------------------------------------

    def emit(self, record: Record) -> None:
        """Hand a record over. Never blocks on I/O and never raises.

        The record belongs to the writer from here on: do not change it afterwards.
        """
        try:
            record.seq = next(self._sequence)
            record.monotonic_s = time.monotonic()
            record.wall_s = time.time()
            waiting = len(self._queue)
            if self._closing or (
                waiting >= self._limit
                and (
                    isinstance(record, (*TRAFFIC, Progress))
                    or waiting >= self._limit + WIRING_RESERVE
                )
            ):
                self._book.dropped(record_type(record), "queue")
                return
            self._queue.append(record)
            if self._asleep or waiting == self._half:
                # Asleep, or pausing while a burst would fill the queue before it looks again.
                self._asleep = False
                self._nudge()
            elif self._thread is None:
                self._start_thread()
        except Exception as error:  # the host must not notice
            self._book.note_fault("recorder.emit", error)

    def record_fault(self, fault: Fault) -> None:
        """Count a fault in the losses *and* write it: the one call a guard needs. Never raises."""
        self._book.fault(fault)
        self.emit(fault)

    def missed(self, kind: str, count: int = 1) -> None:
        """Count what passed by and could not be looked at. Never raises."""
        self._book.missed(kind, count)

    def count_capture_loss(self, reason: str) -> None:
        """A piece of a captured request was not written. Never raises."""
        self._book.capture(reason)

    def losses(self) -> Losses:
        """A copy of everything lost so far."""
        return self._book.snapshot()

    def close(self, reason: str, timeout_s: float = 2.0) -> None:
        """Write what is queued and the footer, for at most ``timeout_s``. Safe to call again.

        Without a record there is no file, and closing does not make one.
        """
        if self._closing:
            return
        self._close_reason = reason
        self._closing = True
        self._nudge()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything handed over so far was tried. For tests and tools."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if not self._queue and (self._writer is None or self._writer.idle):
                return True
            self._nudge()
            time.sleep(0.005)
        return False

    @property
    def path(self) -> Path | None:
        """Part 0, once it exists."""
        return self._writer.path if self._writer is not None else None

    # -- waking and starting ------------------------------------------------------------------

    def _nudge(self) -> None:
        # A plain lock, not an Event: releasing it cannot block, even inside a signal handler.
        with contextlib.suppress(RuntimeError):  # released already: the writer is on its way
            self._wake.release()

    def _start_thread(self) -> None:
        if not self._start_lock.acquire(blocking=False):
            return  # another thread is doing it
        try:
            if self._thread is not None or time.monotonic() < self._start_again_s:
                return
            # Where no thread can be started, trying at every record would cost the scheduler.
            self._start_again_s = time.monotonic() + 10.0
            self._writer = Writer(
                self._directory,
                self._role,
                self._header_factory,
                self._book,
                file_bytes=self._file_bytes,
                max_files=self._max_files,
            )
            thread = threading.Thread(
                target=self._run, args=(self._writer,), name="eagle3-probe-writer", daemon=True
            )
            thread.start()
            self._thread = thread
            _close_at_exit(self)
        finally:
            self._start_lock.release()

    # -- the writer's thread ------------------------------------------------------------------

    def _run(self, writer: Writer) -> None:
        pause_s, idle_after_s = 0.05, 1.0
        last_record = last_progress = time.monotonic()
        progress_owed = False
        reported: Losses | None = None
        while True:
            closing = self._closing
            drained = self._drain(writer)
            now = time.monotonic()
            if drained:
                last_record, progress_owed = now, True
            if now - last_progress >= self._progress_s:
                losses = self._book.snapshot()
                if progress_owed or losses != (reported or Losses()):
                    writer.progress(next(self._sequence), losses)
                    reported, progress_owed = losses, False
                last_progress = now
            if closing and not self._queue:
                writer.footer(lambda: next(self._sequence), self._close_reason)
                return
            if drained == BATCH:
                continue  # a backlog: pausing would cap the rate at one batch per pause
            if drained:
                self._wake.acquire(timeout=pause_s)  # collect a batch; not one write per record
            elif now - last_record < idle_after_s:
                self._wake.acquire(timeout=pause_s)
            else:
                self._asleep = True
                if not self._queue and not self._closing:
                    self._wake.acquire(timeout=self._progress_s)
                self._asleep = False

    def _drain(self, writer: Writer) -> int:
        batch: list[Record] = []
        writer.idle = False
        try:
            while self._queue and len(batch) < BATCH:
                batch.append(self._queue.popleft())
            writer.write(batch)
        except Exception as error:  # a defect of ours; say so in the losses and go on
            self._book.note_fault("recorder.writer", error)
        finally:
            writer.idle = True
        return len(batch)


def _close_at_exit(recorder: Recorder) -> None:
    reference = weakref.ref(recorder)

    def close() -> None:
        alive = reference()
        if alive is not None:
            alive.close("process exit")

    atexit.register(close)
    # Children of multiprocessing leave through os._exit and never reach atexit.
    multiprocessing.util.Finalize(None, close, exitpriority=0)
