"""The device ring in a scheduler process: its sites, its clocks, and the way out of it.

On the thread that launches SGLang's forwards: launching taps, counting, starting and polling
drains. On a thread of its own, without CUDA: reading snapshots and writing records.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..device.drain import Drain, Snapshot
from ..device.layout import SiteLayout
from ..device.ring import Ring
from ..device.tap import record
from ..device.window import WindowSummary, rows_as_one, share_found, summarise
from ..host.session import Session
from ..trace.records import SlotStats, SlotWindow, StatsCoverage
from .reading_thread import ReadingThread
from .site_clock import SiteClock, Unit
from .tensors import is_capturing

MAX_ROWS = 64
"""Rows kept per forward; more are sampled evenly."""
DEPTH = 64
"""Forwards kept per site."""
DRAIN_EVERY_S = (2.0, 10.0)
"""Seconds between drains, at first and after some minutes. What is overwritten meanwhile is
counted, not read: reading takes the interpreter lock for milliseconds, which a server with rounds
of three milliseconds would feel; and who just started a server waits for an answer."""
DRAINS_PER_AGE = 20
"""The interval grows to a twentieth of the time since the first drain."""
DRAIN_EVERY_ROUNDS = 24
"""With every row asked for: well below DEPTH, so that nothing is overwritten before it left."""
FIRST_DRAINS = frozenset({2, 8, 24})
"""Early rounds after which a drain starts too: a short run shall say something."""
PAUSE_S = 0.002
"""Slept between sites while reading, so that the scheduler's thread waits for one site at most."""
AUX_SITES = ("aux_prefill", "aux_verify")
IN_SITES = {"extend_prefill_in": "aux_prefill", "extend_verify_in": "aux_verify"}
EMBEDDING = "target_embedding"


LEADERS = ("aux_verify", "extend_verify_in", "extend_prefill_in", "decode0_in")
"""Sites of one unit of work tick together, so one clock a unit will do: that of its first site.
A site that does not keep step is noticed when its ticks arrive from the device."""


def leader_of(site: str) -> str:
    """The site whose clock counts for this one; sites that belong to no unit lead themselves."""
    for leader in LEADERS[1:]:
        if site.startswith(leader.removesuffix("_in").rstrip("0")):
            return leader
    return site


def site_layouts(slots: int, decode_steps: int) -> list[SiteLayout]:
    """Every place that is tapped, for ``slots`` aux slots and that many draft decode forwards."""
    # What is downstream comes first: a copy reads the counters in this order, so a forward whose
    # draft side is in a snapshot has its target side in it too.
    wide = [*IN_SITES, *AUX_SITES]
    narrow = [
        EMBEDDING,
        "extend_prefill_fc",
        "extend_prefill_hidden",
        "extend_verify_fc",
        "extend_verify_hidden",
    ]
    for step in range(decode_steps):
        narrow += [f"decode{step}_in", f"decode{step}_hidden"]
    return [SiteLayout(n, slots, MAX_ROWS, DEPTH) for n in wide] + [
        SiteLayout(n, 1, MAX_ROWS, DEPTH) for n in narrow
    ]


def drain_interval_s(age_s: float) -> float:
    """Seconds until the next drain, ``age_s`` seconds after the first."""
    least, most = DRAIN_EVERY_S
    return min(most, max(least, age_s / DRAINS_PER_AGE))


def request_rows(units: tuple[Unit, ...], first_tick: int, ticks: int) -> dict[int, int]:
    """tick -> rows on behalf of requests, for a site whose units of work are known.

    A tick without a unit is a warm-up before a graph was captured: none of its rows count. A tick
    that is missing from the result counts whole.
    """
    if not units:
        return {}
    known = {unit.tick: unit.rows for unit in units}
    rows = {}
    for tick in range(first_tick, first_tick + ticks):
        real = known.get(tick, 0)
        if real is not None:
            rows[tick] = real
    return rows


@dataclass(frozen=True)
class _Job:
    """A snapshot, with what the host knew when the copy was enqueued and when it arrived."""

    snapshot: Snapshot
    expected: tuple[int, ...]
    latest: tuple[int, ...]
    units: tuple[tuple[Unit, ...], ...]
    tapped: tuple[Literal["replay", "eager", "mixed"], ...]
    prefill_embedded: bool
    """The embedding was tapped in every prefill: not in those that torch.compile traced."""


class StatsRing:
    """Made at the first eager forward, when the number of aux slots is known."""

    def __init__(self, session: Session, slots: int, device: Any) -> None:
        self._session = session
        steps = getattr(session.server_args, "speculative_num_steps", None) or 8
        self.ring = Ring(site_layouts(slots, max(0, int(steps) - 1)), device)
        self._drain = Drain(self.ring)
        self.units = {leader: SiteClock() for leader in (*LEADERS, EMBEDDING)}
        """Clock of each unit of work, by the site that leads it."""
        self._leaders = [leader_of(site.name) for site in self.ring.sites]
        self.clocks = [self.units.get(leader) or SiteClock() for leader in self._leaders]
        self._index = {site.name: i for i, site in enumerate(self.ring.sites)}
        self._expected: list[tuple[int, ...]] = []
        self._rounds = 0
        self._every_row = session.settings.stats_rows
        self._first_drain_s = self._next_drain_s = 0.0
        self._mark = [(0, 0)] * len(self.clocks)
        self._reader = SnapshotReader(session, self.ring.sites)

    def tap(self, site: str, tensor: Any) -> None:
        """Launch the tap of a site on a [rows, slots * width] tensor."""
        index = self._index.get(site)
        if index is None or tensor is None:
            return
        capturing = is_capturing(tensor)
        if record(self.ring, index, tensor) and self._leaders[index] == site:
            self.clocks[index].launched(capturing=capturing)

    def round_done(self) -> None:
        """After each verify round: now and then start a drain, and take what has arrived."""
        self._rounds += 1
        if self._is_due():
            expected = tuple(clock.next_tick for clock in self.clocks)
            if self._drain.start():
                self._expected.append(expected)
        self.poll()

    def _is_due(self) -> bool:
        if self._rounds in FIRST_DRAINS:
            return True
        if self._every_row:
            return self._rounds % DRAIN_EVERY_ROUNDS == 0
        now_s = time.monotonic()
        if now_s < self._next_drain_s:
            return False
        self._first_drain_s = self._first_drain_s or now_s
        self._next_drain_s = now_s + drain_interval_s(now_s - self._first_drain_s)
        return True

    def _skipped(self) -> dict[str, dict[str, int]]:
        by_site: dict[str, dict[str, int]] = {}
        for (site, reason), times in self.ring.skipped.items():
            by_site.setdefault(site, {})[reason] = times
        return by_site

    def poll(self) -> None:
        """Take a copy that has arrived, if any. Never waits."""
        if not self._expected:
            return
        snapshot = self._drain.poll()
        if snapshot is None:
            return
        tapped: list[Literal["replay", "eager", "mixed"]] = []
        eager_ran: dict[str, int] = {}
        for index, clock in enumerate(self.clocks):
            replays, eager = clock.replays, clock.eager_launches
            before = self._mark[index]
            self._mark[index] = (replays, eager)
            ran = (replays - before[0] > 0, eager - before[1] > 0)
            eager_ran[self.ring.sites[index].name] = eager - before[1]
            if clock is self.units[EMBEDDING] and clock.recorded:
                # It is part of the verify graph, whose replays another clock counts.
                verify = self.units["aux_verify"]
                ran = (verify.replays > 0, ran[1])
            if not any(ran):
                ran = (clock.recorded, not clock.recorded)
            tapped.append("mixed" if all(ran) else "replay" if ran[0] else "eager")
        self._reader.put(
            _Job(
                snapshot,
                self._expected.pop(0),
                tuple(clock.next_tick for clock in self.clocks),
                tuple(tuple(clock.units()) for clock in self.clocks),
                tuple(tapped),
                eager_ran[EMBEDDING] >= eager_ran["aux_prefill"] + eager_ran["aux_verify"],
            ),
            self._skipped(),
            dict(self._drain.refused),
            self.ring.nbytes,
        )


class SnapshotReader:
    """Turns snapshots into records on a daemon thread that never touches CUDA."""

    def __init__(self, session: Session, sites: tuple[SiteLayout, ...]) -> None:
        self._session = session
        self._sites = sites
        self._since = [0] * len(sites)
        self._coverage: tuple[Any, ...] = ()
        self._said: set[tuple[str, str]] = set()
        self._recent: dict[str, NDArray[np.uint64]] = {}
        """Fingerprints of the window before: a forward may straddle two windows."""
        self._tapped: dict[str, Literal["replay", "eager", "mixed"]] = {}
        self._thread = ReadingThread(
            session.guard.site("slot_stats_reader"),
            "eagle3-probe-stats",
            lambda: session.miss("stats_snapshot"),
        )

    def put(
        self,
        job: _Job,
        skipped: dict[str, dict[str, int]],
        refused: dict[str, int],
        ring_bytes: int,
    ) -> None:
        """Hand a snapshot over; a full queue drops it and counts."""
        refused = {**refused, "reader_busy": self._thread.dropped}
        self._thread.put(lambda: self._read(job, skipped, refused, ring_bytes))

    def _read(
        self,
        job: _Job,
        skipped: dict[str, dict[str, int]],
        refused: dict[str, int],
        ring_bytes: int,
    ) -> None:
        windows: dict[str, tuple[int, WindowSummary, int, bool]] = {}
        for index, site in enumerate(self._sites):
            first, words, lost = job.snapshot.records(index, self._since[index])
            self._since[index] = first + len(words)
            # More or fewer forwards on the device than the host counted: then its rows are unknown.
            # The embedding is only searched in, so its padded rows do no harm.
            within = job.expected[index] <= job.snapshot.ticks[index] <= job.latest[index]
            joined = within or site.name == EMBEDDING
            rows: dict[int, int] = {}
            if joined and site.name != EMBEDDING:
                rows = request_rows(job.units[index], first, len(words))
            summary = summarise(
                words,
                first,
                site.max_rows,
                rows,
                full=self._session.settings.stats_rows and site.name in (*AUX_SITES, *IN_SITES),
            )
            if summary is not None:
                windows[site.name] = (index, summary, lost, joined)
            time.sleep(PAUSE_S)
        for name, (index, summary, lost, joined) in windows.items():
            self._tapped[name] = job.tapped[index]
            units = {u.tick: u for u in job.units[index]} if joined else {}
            embedding = windows.get(EMBEDDING)
            if name == "aux_prefill" and not job.prefill_embedded:
                embedding = None
            self._session.emit(
                self._record(
                    name, job.tapped[index], summary, lost, joined, units, windows, embedding
                )
            )
            time.sleep(PAUSE_S)
        self._recent = {name: window[1].fingerprints for name, window in windows.items()}
        self._note_coverage(skipped, refused, ring_bytes)

    def _note_coverage(
        self, skipped: dict[str, dict[str, int]], refused: dict[str, int], ring_bytes: int
    ) -> None:
        tapped = dict(self._tapped)
        coverage = (tapped, skipped, refused)
        if coverage == self._coverage:
            return
        new = [f"{s} ({how})" for s, how in tapped.items() if (s, how) not in self._said]
        if new:
            self._said |= set(tapped.items())
            self._session.say("statistics tapped at %s", ", ".join(new))
        self._coverage = coverage
        self._session.emit(
            StatsCoverage(
                tapped=tapped, skipped=skipped, refused_drains=refused, ring_bytes=ring_bytes
            )
        )

    def _record(
        self,
        name: str,
        tapped: Literal["replay", "eager", "mixed"],
        summary: WindowSummary,
        lost: int,
        joined: bool,
        units: dict[int, Unit],
        windows: dict[str, tuple[int, WindowSummary, int, bool]],
        embedding: tuple[int, WindowSummary, int, bool] | None,
    ) -> SlotStats:
        slots = []
        for number, slot in enumerate(summary.slots):
            equals = None
            # Embeddings that were lost could not be found, and would look like a fault.
            if embedding is not None and not embedding[2] and name in AUX_SITES:
                equals = share_found(
                    summary.fingerprints[:, number], self._known(EMBEDDING, embedding[1])[:, 0]
                )
            slots.append(
                SlotWindow(
                    rms_mean=slot.rms_mean,
                    rms_min=slot.rms_min,
                    rms_max=slot.rms_max,
                    mean=slot.mean,
                    absmax=slot.absmax,
                    nonfinite=slot.nonfinite,
                    equals_embedding=equals,
                )
            )
        found = None
        source_name = IN_SITES.get(name, "")
        source = windows.get(source_name)
        # Sampled rows of a tree are not the same rows on both sides.
        if source is not None and not source[2] and not (summary.sampled or source[1].sampled):
            found = share_found(
                rows_as_one(summary.fingerprints),
                rows_as_one(self._known(source_name, source[1])),
            )
        newest = units.get(summary.last_tick)
        aux = name in AUX_SITES or name in IN_SITES
        return SlotStats(
            site=name,
            tapped=tapped,
            first_tick=summary.first_tick,
            last_tick=summary.last_tick,
            lost_ticks=lost,
            rows=summary.rows,
            padded_rows_dropped=summary.padded_rows_dropped,
            joined=joined,
            slots=slots,
            boundaries=self._boundaries() if aux else [],
            same_slots=[list(pair) for pair in summary.same_slots],
            found_in_target=found,
            tick_digests=summary.tick_digests,
            sample_tick=summary.last_tick,
            sample_rids=[self._session.rid_digest(rid) for rid in newest.rids]
            if newest is not None
            else [],
            full_rows=summary.full_rows or None,
        )

    def _known(self, name: str, window: WindowSummary) -> NDArray[np.uint64]:
        before = self._recent.get(name)
        if before is None or before.shape[1] != window.fingerprints.shape[1]:
            return window.fingerprints
        return np.concatenate([before, window.fingerprints])

    def _boundaries(self) -> list[int]:
        for plan in list(self._session.plans.values()):
            return list(plan.boundaries)
        return []
