"""The host's count of forwards against what a device would have counted."""

from __future__ import annotations

import random

from sglang_eagle3_probe.taps.site_clock import SiteClock


class Device:
    """Counts launches the way the ring does: eager ones and replays, never captures."""

    def __init__(self) -> None:
        self.ticks = 0


def eager(clock: SiteClock, device: Device) -> None:
    device.ticks += 1
    clock.launched(capturing=False)


def capture(clock: SiteClock, device: Device) -> None:
    eager(clock, device)
    eager(clock, device)
    clock.launched(capturing=True)


def unit(clock: SiteClock, device: Device, *, how: str, rows: int = 4) -> None:
    clock.begin()
    if how == "eager":
        eager(clock, device)
    else:
        if how == "captures first":
            capture(clock, device)
        device.ticks += 1
    clock.end(rows, (f"r{device.ticks}",))


def test_replays_after_a_capture_at_start() -> None:
    clock, device = SiteClock(), Device()
    for _ in range(3):
        capture(clock, device)
    assert clock.next_tick == device.ticks == 6
    for _ in range(5):
        unit(clock, device, how="replay")
    assert clock.next_tick == device.ticks == 11
    assert [u.tick for u in clock.units()] == [6, 7, 8, 9, 10]
    assert clock.newest is not None
    assert clock.newest.rids == ("r11",)
    assert (clock.replays, clock.eager_launches) == (5, 6)


def test_any_mixture_stays_in_step() -> None:
    for seed in range(200):
        choice = random.Random(seed)
        clock, device = SiteClock(), Device()
        capture(clock, device)
        for _ in range(30):
            unit(clock, device, how=choice.choice(["replay", "eager", "captures first"]))
            if choice.random() < 0.2:
                eager(clock, device)
            newest = clock.newest
            assert newest is not None
            assert clock.next_tick == device.ticks
        assert all(a.tick < b.tick for a, b in zip(clock.units(), clock.units()[1:], strict=False))


def test_a_unit_without_a_tap_anywhere_counts_nothing() -> None:
    clock = SiteClock()
    clock.begin()
    clock.end(4, ("a",))
    assert clock.next_tick == 0
    assert clock.units() == []


def test_warm_ups_count_no_rows() -> None:
    from sglang_eagle3_probe.taps.site_clock import Unit
    from sglang_eagle3_probe.taps.stats_ring import request_rows

    units = (Unit(6, 4, ("a",)), Unit(7, None, ()), Unit(8, 8, ("a", "b")))
    assert request_rows(units, 4, 5) == {4: 0, 5: 0, 6: 4, 8: 8}
    assert request_rows((), 4, 5) == {}


def test_every_site_of_a_unit_follows_its_leader() -> None:
    from sglang_eagle3_probe.taps.stats_ring import EMBEDDING, LEADERS, leader_of, site_layouts

    led: dict[str, list[str]] = {}
    for site in site_layouts(3, 2):
        led.setdefault(leader_of(site.name), []).append(site.name)
    assert {k: len(v) for k, v in led.items()} == {
        "aux_prefill": 1,
        "aux_verify": 1,
        "extend_prefill_in": 3,
        "extend_verify_in": 3,
        "decode0_in": 4,
        EMBEDDING: 1,
    }
    assert set(LEADERS) < set(led)


def test_drains_are_frequent_at_first_and_seldom_later() -> None:
    from sglang_eagle3_probe.taps.stats_ring import drain_interval_s

    assert [drain_interval_s(age) for age in (0, 40, 60, 200, 3600)] == [2.0, 2.0, 3.0, 10.0, 10.0]
