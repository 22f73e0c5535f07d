"""The drain, while graph replays go on writing."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from sglang_eagle3_probe.device import tap
from sglang_eagle3_probe.device.drain import Drain
from sglang_eagle3_probe.device.layout import SiteLayout, decode
from sglang_eagle3_probe.device.ring import Ring

from .common import Result, capture

ROWS = 64


@dataclass
class Tally:
    """What arrived of a site whose launch of tick t saw t in every value."""

    drain: Drain
    site: int
    since: int = 0
    seen: int = 0
    lost: int = 0
    wrong: int = 0
    snapshots: int = 0
    times: list[float] = field(default_factory=list)

    def look(self) -> bool:
        """Take a snapshot when there is one."""
        snapshot = self.drain.poll()
        if snapshot is None:
            return False
        self.times.append((time.monotonic_ns() - snapshot.started_ns) / 1e6)
        self.snapshots += 1
        first, words, missing = snapshot.records(self.site, self.since)
        fields = decode(words[:, :ROWS])
        self.wrong += int(np.count_nonzero(words[:, ROWS:]))
        expected = np.arange(first, first + len(words), dtype=np.float32)[:, None, None]
        for name in ("mean", "rms", "absmax"):
            self.wrong += int((~np.isclose(fields[name], expected, rtol=1e-5)).sum())
        for name in ("fingerprint_a", "fingerprint_b"):
            self.wrong += int((fields[name] != fields[name][:, :1, :1]).sum())
        self.seen += len(words)
        self.lost += missing
        self.since = first + len(words)
        return True


def drain_case(
    site: SiteLayout, ballast: SiteLayout, *, every: int, replays: int, launches: int = 1
) -> dict[str, Any]:
    """Replay a graph that taps its own tick number, drain meanwhile, check what arrives."""
    ring = Ring([ballast, site], "cuda")
    index = ring.site_index(site.name)
    count = torch.full((1, 1), -1.0, device="cuda")
    x = torch.zeros(ROWS, 3 * 192, device="cuda")

    def body() -> None:
        for _ in range(launches):
            count.add_(1)
            x.copy_(count.expand_as(x))
            assert tap.record(ring, index, x)

    graph = capture(body)
    tally = Tally(Drain(ring), index)
    marks = [torch.cuda.Event() for _ in range(8)]
    for step in range(replays):
        mark = marks[step % 8]
        mark.synchronize()  # at most eight replays ahead of the device
        graph.replay()
        mark.record()
        if step % every == every - 1:
            tally.drain.start()
        tally.look()
    torch.cuda.synchronize()
    while tally.look():
        pass
    tally.drain.start()
    torch.cuda.synchronize()
    tally.look()
    return {
        "depth": site.depth,
        "ring_mib": round(ring.nbytes / 2**20, 2),
        "ticks": (replays + 2) * launches,
        "seen": tally.seen,
        "lost": tally.lost,
        "wrong_fields": tally.wrong,
        "snapshots": tally.snapshots,
        "refused": tally.drain.refused["busy"],
        "ms_to_snapshot": round(statistics.median(tally.times), 3),
    }


SMALL = SiteLayout("ballast", 1, 1, 2)


def drain_keeps_up() -> Result:
    """Deep enough: nothing lost, nothing wrong."""
    facts = drain_case(SiteLayout("site", 3, ROWS, 512), SMALL, every=4, replays=3000)
    good = facts["lost"] == 0 and facts["wrong_fields"] == 0 and facts["seen"] == facts["ticks"]
    return good, facts


def drain_falls_behind() -> Result:
    """Too shallow: what is lost is counted, what arrives is right."""
    facts = drain_case(SiteLayout("site", 3, ROWS, 8), SMALL, every=64, replays=2000)
    good = facts["lost"] > 0 and facts["wrong_fields"] == 0
    return good and facts["seen"] + facts["lost"] == facts["ticks"], facts


def drain_races() -> Result:
    """Long copies with many launches inside: nothing torn gets through.

    The counters, then 4 MiB of ballast, then a site with wide gaps: launches pass between the copy
    of the counter and that of the records, and during that of the records.
    """
    facts = drain_case(
        SiteLayout("site", 3, 1024, 128),
        SiteLayout("ballast", 1, 1024, 128),
        every=2,
        replays=1500,
        launches=16,
    )
    good = facts["wrong_fields"] == 0 and facts["snapshots"] > 10
    return good and facts["seen"] + facts["lost"] == facts["ticks"], facts
