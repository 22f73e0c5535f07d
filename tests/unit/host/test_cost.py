"""What the probe counts as its own time."""

from __future__ import annotations

import threading
import time
from types import ModuleType
from typing import Any

import pytest

from sglang_eagle3_probe.host import cost
from sglang_eagle3_probe.host.cost import CostBook
from sglang_eagle3_probe.host.guard import Guard
from sglang_eagle3_probe.host.seams import Seam
from sglang_eagle3_probe.host.wrapping import Tap, wrap

OURS_S, HOSTS_S = 0.004, 0.03


class Worker:
    def outer(self) -> int:
        return self.inner()

    def inner(self) -> int:
        time.sleep(HOSTS_S)
        return 7

    def brief(self) -> None:
        pass

    def fails(self) -> None:
        raise KeyError("host")


def wrapped_worker(book: CostBook) -> Any:
    module = ModuleType("host_module")
    module.Worker = type("Worker", (Worker,), dict(vars(Worker)))  # type: ignore[attr-defined]
    site = Guard(3, lambda _fault: None).site("t")
    for name in ("outer", "inner", "brief", "fails"):
        tap = Tap(site, before=lambda _call: time.sleep(OURS_S))
        row = Seam(name, "host_module", f"Worker.{name}", (), "", "test")
        wrap(module, row, [tap], book)
    return module.Worker()


def totals(book: CostBook) -> dict[str, tuple[int, float]]:
    return {s.seam: (s.calls, s.total_us / 1e6) for s in book.take().seams}


def test_host_time_is_not_ours_even_where_wrapped_functions_nest() -> None:
    book = CostBook()
    assert wrapped_worker(book).outer() == 7
    seen = totals(book)
    assert {name: calls for name, (calls, _) in seen.items()} == {"outer": 1, "inner": 1}
    for _, spent_s in seen.values():
        assert OURS_S <= spent_s < HOSTS_S


def test_call_that_raises_is_counted_and_raises() -> None:
    book = CostBook()
    worker = wrapped_worker(book)
    for _ in range(2):
        with pytest.raises(KeyError, match="host"):
            worker.fails()
    assert totals(book)["fails"][0] == 2


def test_few_calls_are_timed_and_stand_for_all() -> None:
    book = CostBook()
    worker = wrapped_worker(book)
    for _ in range(cost.TIMED_EVERY + 2):
        worker.brief()
    [seam] = book.take().seams
    assert (seam.calls, seam.timed_calls) == (cost.TIMED_EVERY + 2, 2)
    assert seam.total_us / seam.calls >= OURS_S * 1e6


def test_record_is_due_every_few_seconds_and_starts_anew(monkeypatch: Any) -> None:
    book = CostBook()
    taken = []
    book.when_due = lambda: taken.append(book.take())
    clock = book.clock("a")
    for second in range(1, 23):
        clock.is_due()
        book.add(clock, 1000, second * 1_000_000_000)
    assert [sum(s.calls for s in record.seams) for record in taken] == [7, 6, 6]


def test_threads_of_ours_are_named_with_their_cpu_time() -> None:
    done, go = threading.Event(), threading.Event()

    def work() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        done.set()
        go.wait(10)

    thread = threading.Thread(target=work, name=f"{cost.THREAD_PREFIX}-test", daemon=True)
    thread.start()
    done.wait(10)
    book = CostBook()
    first, second = book.take(), book.take()
    go.set()
    assert first.threads_cpu_ms[thread.name] >= 50
    assert second.threads_cpu_ms[thread.name] < 10
