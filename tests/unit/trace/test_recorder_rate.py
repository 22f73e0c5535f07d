"""Bursts: the recorder keeps up beyond one batch per pause, and never grows."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from unit.trace import samples

from sglang_eagle3_probe.trace import writer as writer_module
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.recorder import BATCH, Recorder


class CountedLock:
    """Stands for the lock on which the writer pauses."""

    def __init__(self) -> None:
        self.pauses = 0
        self._lock = threading.Lock()
        self._lock.acquire()

    def acquire(self, timeout: float = -1) -> bool:
        self.pauses += 1
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()


def make(directory: Path, **changes: Any) -> Recorder:
    return Recorder(directory, "scheduler", samples.header, **changes)


def test_a_backlog_is_written_without_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    original = writer_module.Writer.write

    def slow(self: writer_module.Writer, records: Any) -> None:
        gate.wait(10)
        original(self, records)

    monkeypatch.setattr(writer_module.Writer, "write", slow)
    recorder = make(tmp_path)
    recorder._wake = lock = CountedLock()  # type: ignore[assignment]
    recorder.emit(samples.seams())
    for record in samples.rounds(12 * BATCH):
        recorder.emit(record)
    lock.pauses = 0
    gate.set()
    end = time.monotonic() + 20
    while recorder._queue:
        assert time.monotonic() < end
        time.sleep(0.001)
    # One pause after the batch that the gate held up, and one after the last.
    assert lock.pauses <= 2
    recorder.close("test", timeout_s=20)
    (process,) = read(tmp_path).processes
    assert process.rounds.total == 12 * BATCH
    assert process.missing == 0


def test_a_burst_ends_the_pause_when_the_queue_is_half_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "_start_thread", lambda self: None)
    recorder = make(tmp_path, queue_records=100)
    for record in samples.rounds(50):
        recorder.emit(record)
    assert recorder._wake.locked()
    recorder.emit(samples.rounds(1)[0])
    assert not recorder._wake.locked()


def test_beyond_its_bound_the_queue_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "_start_thread", lambda self: None)
    recorder = make(tmp_path, queue_records=100)
    for record in samples.rounds(1000):
        recorder.emit(record)
    assert len(recorder._queue) == 100
    assert recorder.losses().dropped_records == {"verify_round": 900}
