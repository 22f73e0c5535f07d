"""Measures the probe's own time inside the host, call by call.

An A/B run of two servers cannot show half a per cent: equal servers differ by more. What our
wrappers take is therefore measured where it is spent, on every ``TIMED_EVERY``-th call: reading a
clock costs a microsecond on some virtual machines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..trace.cost_records import ProbeCost, SeamCost

EVERY_S = 5
EVERY_NS = EVERY_S * 1_000_000_000
TIMED_EVERY = 16
THREAD_PREFIX = "eagle3-probe"


class SeamClock:
    """Sums of one seam."""

    __slots__ = ("calls", "name", "timed", "total_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.timed = 0
        self.total_ns = 0

    def is_due(self) -> bool:
        """Count a call; whether it is one to be timed. The first is."""
        self.calls += 1
        return self.calls % TIMED_EVERY == 1


class CostBook:
    """All seams of a process.

    Attributes:
        when_due: called every ``EVERY_S`` seconds, on the thread whose call is counted, in the
            midst of a host call: it must not raise.
    """

    def __init__(self) -> None:
        self.when_due: Callable[[], None] | None = None
        self._seams: dict[str, SeamClock] = {}
        self._began_ns = 0
        self._due_ns = 0
        self._threads: dict[str, int] = {}

    def clock(self, seam: str) -> SeamClock:
        """The sums of this seam; several rows of the same name share one."""
        return self._seams.setdefault(seam, SeamClock(seam))

    def add(self, clock: SeamClock, spent_ns: int, now_ns: int) -> None:
        """Add a timed call that ended at ``now_ns`` (``time.perf_counter_ns``)."""
        clock.timed += 1
        clock.total_ns += spent_ns
        if now_ns > self._due_ns and self.when_due is not None:
            first = not self._due_ns
            self._due_ns = now_ns + EVERY_NS
            if first:
                self._began_ns = now_ns
            else:
                self.when_due()

    def take(self) -> ProbeCost:
        """The record since the last one; counting starts anew."""
        now_ns = time.perf_counter_ns()
        window_ns, self._began_ns = now_ns - self._began_ns, now_ns
        seams = []
        for clock in self._seams.values():
            if clock.timed:
                scaled_us = clock.total_ns / 1e3 * clock.calls / clock.timed
                seams.append(
                    SeamCost(
                        seam=clock.name,
                        calls=clock.calls,
                        timed_calls=clock.timed,
                        total_us=round(scaled_us, 1),
                    )
                )
                clock.calls = clock.timed = clock.total_ns = 0
        return ProbeCost(
            window_s=round(window_ns / 1e9, 3), seams=seams, threads_cpu_ms=self._threads_cpu_ms()
        )

    def _threads_cpu_ms(self) -> dict[str, float]:
        spent: dict[str, float] = {}
        for thread in threading.enumerate():
            if not thread.name.startswith(THREAD_PREFIX) or thread.ident is None:
                continue
            try:
                now_ns = time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
            except OSError:  # it ended meanwhile
                continue
            spent[thread.name] = round((now_ns - self._threads.get(thread.name, 0)) / 1e6, 2)
            self._threads[thread.name] = now_ns
        return spent
