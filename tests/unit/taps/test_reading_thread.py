"""Jobs off the scheduler's thread."""

from __future__ import annotations

import threading
from typing import Any

from sglang_eagle3_probe.host.guard import Guard
from sglang_eagle3_probe.taps.reading_thread import MOST_WAITING, ReadingThread


def test_jobs_run_in_order_on_the_named_thread() -> None:
    seen: list[tuple[int, str]] = []
    done = threading.Event()
    thread = ReadingThread(Guard(3, lambda _fault: None).site("t"), "reading-test", lambda: None)
    for number in range(3):
        thread.put(lambda n=number: seen.append((n, threading.current_thread().name)))
    thread.put(done.set)
    assert done.wait(10)
    assert seen == [(n, "reading-test") for n in range(3)]
    assert thread.dropped == 0


def test_full_queue_drops_and_counts_and_never_waits() -> None:
    begun, go = threading.Event(), threading.Event()

    def long_job() -> None:
        begun.set()
        go.wait(10)

    missed: list[int] = []
    site = Guard(3, lambda _fault: None).site("t")
    thread = ReadingThread(site, "reading-test", lambda: missed.append(1))
    thread.put(long_job)
    assert begun.wait(10)
    taken = [thread.put(lambda: None) for _ in range(MOST_WAITING + 3)]
    go.set()
    assert taken == [True] * MOST_WAITING + [False] * 3
    assert thread.dropped == 3
    assert missed == [1, 1, 1]


def test_job_that_raises_is_a_fault_and_the_thread_goes_on_until_the_limit() -> None:
    faults: list[Any] = []
    ran: list[int] = []
    done = threading.Event()
    site = Guard(2, faults.append).site("t")
    thread = ReadingThread(site, "reading-test", lambda: None)
    thread.put(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    thread.put(lambda: ran.append(1))
    thread.put(done.set)
    assert done.wait(10)
    assert ran == [1]
    assert [fault.site for fault in faults] == ["t"]
