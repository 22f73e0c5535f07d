"""Which units are timed, and when they are told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_eagle3_probe.device.events import EventTimer
from sglang_eagle3_probe.host.call import Binder, Call
from sglang_eagle3_probe.taps import counting, phase_times
from sglang_eagle3_probe.taps.phase_times import PhaseTimesTap
from sglang_eagle3_probe.trace.acceptance_records import PhaseTimes

sys.path.insert(0, str(Path(__file__).parents[1] / "device"))
from test_events import FakeDevice


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


class FakeSession:
    def __init__(self, device: str, algorithm: str | None = "EAGLE3") -> None:
        self.server_args = SimpleNamespace(device=device, speculative_algorithm=algorithm)
        self.records: list[Any] = []
        self.guard = SimpleNamespace(site=lambda name: Site(name))

    def emit(self, record: Any) -> None:
        self.records.append(record)


class Site:
    """Lets every exception through."""

    enabled = True
    induced = False

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self) -> None: ...

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None: ...


class Mode:
    def __init__(self, name: str) -> None:
        self.name = name

    def is_extend(self) -> bool:
        return self.name == "EXTEND"

    def is_decode(self) -> bool:
        return self.name == "DECODE"

    def is_idle(self) -> bool:
        return self.name == "IDLE"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    mine = Clock()
    monkeypatch.setattr(phase_times, "time", mine)
    monkeypatch.setattr(counting, "time", mine)
    return mine


def batch(size: int, mode: str = "DECODE") -> Any:
    return SimpleNamespace(reqs=[object()] * size, forward_mode=Mode(mode))


WORKER = SimpleNamespace(speculative_num_steps=3, topk=1, speculative_num_draft_tokens=4)


def run(tap: Any, clock: Clock, seconds: float, size: int, mode: str = "DECODE") -> None:
    def work(_call: Call) -> None:
        clock.now += seconds

    tap.run(work, Call(Binder({"batch": 0}), work, WORKER, (batch(size, mode),), {}))


def one_round(taps: PhaseTimesTap, clock: Clock, size: int) -> None:
    run(taps.draft, clock, 0.002, size)
    run(taps.verify, clock, 0.004, size)
    run(taps.extend, clock, 0.001, size)


def told(session: FakeSession) -> dict[tuple[str, int], Any]:
    [record] = session.records
    assert isinstance(record, PhaseTimes)
    return {(p.phase, p.batch_size): p for p in record.phases}


def test_on_a_cpu_every_unit_is_timed_by_the_wall_clock(clock: Clock) -> None:
    session = FakeSession("cpu")
    taps = PhaseTimesTap(session)  # type: ignore[arg-type]
    run(taps.worker, clock, 0.5, 2, "EXTEND")
    for _ in range(3):
        run(taps.worker, clock, 0.0, 2)
        one_round(taps, clock, 2)
    assert session.records == []
    one_round(taps, clock, 1)
    one_round(taps, clock, 1)
    clock.now += 1.0
    one_round(taps, clock, 5)
    found = told(session)
    assert session.records[0].clock == "host"
    assert (session.records[0].steps, session.records[0].draft_tokens) == (3, 4)
    assert found["prefill", 2].mean_ms == pytest.approx(500)
    assert found["draft", 2].count == found["draft_extend", 2].count == 3
    assert found["verify", 2].median_ms == pytest.approx(4)
    assert found["verify", 1].count == 2
    assert found["draft", 1].greatest_ms == pytest.approx(2)


def test_idle_ranks_have_no_phases(clock: Clock) -> None:
    session = FakeSession("cpu")
    taps = PhaseTimesTap(session)  # type: ignore[arg-type]
    run(taps.verify, clock, 5.0, 0)
    run(taps.verify, clock, 5.0, 1)
    run(taps.verify, clock, 5.0, 3)
    assert set(told(session)) == {("verify", 1)}


def test_plain_decoding_counts_only_without_speculation(clock: Clock) -> None:
    for algorithm, expected in ((None, {("decode", 2)}), ("EAGLE3", None)):
        session = FakeSession("cpu", algorithm)
        taps = PhaseTimesTap(session)  # type: ignore[arg-type]
        run(taps.target, clock, 1.0, 2)
        run(taps.target, clock, 1.0, 3)
        if expected is None:
            assert session.records == []
        else:
            assert set(told(session)) == expected
            assert session.records[0].steps == 0


def test_a_new_shape_is_told_apart(clock: Clock) -> None:
    session = FakeSession("cpu")
    taps = PhaseTimesTap(session)  # type: ignore[arg-type]
    taps._next_s = clock.now + 100.0
    one_round(taps, clock, 1)
    wider = SimpleNamespace(speculative_num_steps=5, topk=1, speculative_num_draft_tokens=6)

    def work(_call: Call) -> None:
        clock.now += 200.0

    for _ in range(2):
        taps.verify.run(work, Call(Binder({"batch": 0}), work, wider, (batch(1),), {}))
    assert [r.steps for r in session.records] == [3, 5]
    assert len(session.records[0].phases) == 3


def test_the_end_of_the_last_request_tells_early(clock: Clock) -> None:
    session = FakeSession("cpu")
    taps = PhaseTimesTap(session)  # type: ignore[arg-type]
    one_round(taps, clock, 1)
    clock.now += 0.3
    for finished in (False, True):
        requests = [SimpleNamespace(finished=lambda: True)]
        requests += [SimpleNamespace(finished=lambda finished=finished: finished)]
        call = Call(Binder({"reqs": 0}), print, None, (requests,), {})
        taps.output.run(lambda _call: None, call)
        assert len(session.records) == int(finished)


def on_a_gpu(clock: Clock, pairs: int) -> tuple[FakeSession, PhaseTimesTap, FakeDevice]:
    """A tap that has chosen the device's clock, with a pool of so many event pairs."""
    session, device = FakeSession("cuda"), FakeDevice()
    taps = PhaseTimesTap(session)  # type: ignore[arg-type]
    taps._clock = "device"
    taps._turns = phase_times.device_turns()
    taps._events = EventTimer(device.event, lambda: device.capturing, pairs=pairs)
    taps._next_s = clock.now + 1000.0
    return session, taps, device


def test_on_a_gpu_every_fifth_unit_is_timed_by_events(clock: Clock) -> None:
    session, taps, device = on_a_gpu(clock, pairs=8)
    for _ in range(20):
        one_round(taps, clock, 4)
        clock.now += 0.01
        device.catch_up()
    assert device.made == 16
    assert device.recorded == 2 * 3 * 20 // 5
    clock.now += 2000.0
    one_round(taps, clock, 4)
    found = told(session)
    assert session.records[0].clock == "device"
    assert {key: p.count for key, p in found.items()} == {
        ("draft", 4): 4,
        ("verify", 4): 4,
        ("draft_extend", 4): 4,
    }
    assert {p.mean_ms for p in found.values()} == {1.0}


def test_of_a_fast_server_twenty_units_a_second_are_timed(clock: Clock) -> None:
    _, taps, device = on_a_gpu(clock, pairs=8)
    for _ in range(200):
        one_round(taps, clock, 4)
        device.catch_up()
    # Rounds of 7 ms: every fifth is 35 ms after the one before, and every tenth 70.
    assert device.recorded == 2 * 3 * 200 // 10


def test_a_device_that_is_behind_uses_the_pool_up(clock: Clock) -> None:
    session, taps, device = on_a_gpu(clock, pairs=2)
    for _ in range(10):
        one_round(taps, clock, 4)
        clock.now += 0.01
    device.catch_up()
    assert session.records == []
    for _ in range(5):
        clock.now += 2000.0
        one_round(taps, clock, 4)
        device.catch_up()
    # Of the first and sixth round four units found no pair, and of the eleventh the draft: it comes
    # before the verify that looks which pairs are free again.
    assert session.records[0].not_timed == 5
    assert sum(p.count for p in session.records[0].phases) == 2
