"""Event pairs on a fake device that finishes work when told to."""

from __future__ import annotations

from sglang_eagle3_probe.device.events import EventTimer


class FakeDevice:
    """A stream whose clock advances with every record."""

    def __init__(self) -> None:
        self.recorded = 0
        self.finished = 0
        self.capturing = False
        self.made = 0
        self.queried_unfinished = 0

    def event(self) -> FakeEvent:
        self.made += 1
        return FakeEvent(self)

    def catch_up(self) -> None:
        self.finished = self.recorded


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.at = 0

    def record(self) -> None:
        assert not self.device.capturing
        self.device.recorded += 1
        self.at = self.device.recorded

    def query(self) -> bool:
        assert not self.device.capturing
        return self.device.finished >= self.at

    def elapsed_time(self, end: FakeEvent) -> float:
        # A real event waits or raises here when the device is not there yet.
        assert end.query()
        return float(end.at - self.at)


def timer(device: FakeDevice, pairs: int = 4) -> EventTimer[str]:
    return EventTimer(device.event, lambda: device.capturing, pairs)


def test_nothing_is_read_before_it_is_finished() -> None:
    device = FakeDevice()
    mine = timer(device)
    pair = mine.begin()
    assert pair is not None
    mine.end(pair, "verify")
    assert list(mine.arrived()) == []
    device.catch_up()
    assert list(mine.arrived()) == [("verify", 1.0)]
    assert list(mine.arrived()) == []


def test_units_nest_and_arrive_in_order_of_their_ends() -> None:
    device = FakeDevice()
    mine = timer(device)
    outer, inner = mine.begin(), mine.begin()
    assert outer is not None
    assert inner is not None
    mine.end(inner, "inner")
    mine.end(outer, "outer")
    device.catch_up()
    assert list(mine.arrived()) == [("inner", 1.0), ("outer", 3.0)]


def test_an_empty_pool_is_counted_and_fills_again() -> None:
    device = FakeDevice()
    mine = timer(device, pairs=2)
    for _ in range(2):
        pair = mine.begin()
        assert pair is not None
        mine.end(pair, "x")
    assert mine.begin() is None
    assert mine.not_timed == 1
    device.catch_up()
    assert len(list(mine.arrived())) == 2
    assert mine.begin() is not None
    assert device.made == 4


def test_a_capture_is_left_alone() -> None:
    device = FakeDevice()
    mine = timer(device)
    pair = mine.begin()
    assert pair is not None
    mine.end(pair, "x")
    device.catch_up()
    device.capturing = True
    assert mine.begin() is None
    assert list(mine.arrived()) == []
    assert mine.not_timed == 0
    device.capturing = False
    assert list(mine.arrived()) == [("x", 1.0)]
