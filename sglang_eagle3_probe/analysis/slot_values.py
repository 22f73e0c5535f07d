"""Slot statistics pooled over windows, so that hours of them fit in little memory."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from sglang_eagle3_probe.trace.records import SlotStats, SlotWindow

RECENT = 200
"""Newest windows kept per site, for the curve over time."""
DIGESTS = 4096
"""Newest ticks per site whose digests are kept."""
ENOUGH_ROWS = 32
"""Rows a window must have before its mean is compared with that of others."""
REFERENCE_WINDOWS = 5
"""First windows with enough rows: what later ones are compared with."""
DRIFT_FACTOR = 10.0


class Point(NamedTuple):
    """One window of a site, for the curve over time."""

    wall_s: float
    rows: int
    rms: tuple[float, ...]
    """Per slot, the mean of its rows."""
    nonfinite: tuple[bool, ...]
    """Per slot, whether any value was NaN or infinite."""


@dataclass
class Shares:
    """Rows that had to be found somewhere else in the same window, pooled over windows.

    The first and the last forward of a window may lie in the neighbouring window of the other
    place, so a window of t ticks may honestly miss the rows of two of them.
    """

    rows: int = 0
    hits: int = 0
    windows: int = 0
    inner: float = 0.0
    """Rows that no edge excuses: rows of all ticks but two, per window."""
    beyond: float = 0.0
    """Rows missed in excess of what the edges excuse."""
    blank_windows: int = 0
    """Windows of two ticks or more without any row found."""

    def add(self, share: float, rows: int, ticks: int) -> None:
        """Fold in one window of ``rows`` rows in ``ticks`` forwards."""
        hits = round(share * rows)
        excused = rows * min(1.0, 2 / max(1, ticks))
        self.rows += rows
        self.hits += hits
        self.windows += 1
        self.inner += rows - excused
        self.beyond += max(0.0, rows - hits - excused)
        self.blank_windows += ticks >= 2 and not hits and rows > 0

    @property
    def misses(self) -> int:
        return self.rows - self.hits


@dataclass
class Drift:
    """Windows of a slot whose RMS left that of its first windows by a factor of 10 or more.

    Both the mean and the least row must have moved: a few rows of attention sinks, whose norm is
    hundreds of times that of the others, move the mean of a short window alone.
    """

    reference: list[tuple[float, float]] = field(default_factory=list)
    """(mean, least row) RMS of the first windows with enough rows."""
    compared: int = 0
    """Windows after those."""
    collapsed: int = 0
    exploded: int = 0
    worst: float = 1.0
    """Mean RMS over the reference's, of the window furthest from it."""
    first_wall_s: float | None = None
    """When the first such window was written."""

    def add(self, window: SlotWindow, rows: int, wall_s: float) -> None:
        """Compare one window, or learn from it."""
        if rows < ENOUGH_ROWS or window.nonfinite:
            return
        if len(self.reference) < REFERENCE_WINDOWS:
            if window.rms_max > 0:
                self.reference.append((window.rms_mean, window.rms_min))
            return
        self.compared += 1
        mean, least = self.reference_rms
        if window.rms_mean * DRIFT_FACTOR <= mean and window.rms_min * DRIFT_FACTOR <= least:
            self.collapsed += 1
        elif window.rms_mean >= DRIFT_FACTOR * mean and window.rms_min >= DRIFT_FACTOR * least:
            self.exploded += 1
        else:
            return
        ratio = window.rms_mean / mean
        if self.first_wall_s is None:
            self.first_wall_s = wall_s
            self.worst = ratio
        elif max(ratio, _inverse(ratio)) > max(self.worst, _inverse(self.worst)):
            self.worst = ratio

    @property
    def reference_rms(self) -> tuple[float, float]:
        """(mean, least row) RMS that windows are compared with."""
        means, leasts = zip(*self.reference, strict=True)
        return median(means), median(leasts)

    @property
    def windows(self) -> int:
        return self.collapsed + self.exploded


def _inverse(ratio: float) -> float:
    return 1 / ratio if ratio > 0 else float("inf")


@dataclass
class SlotValues:
    """One slot of a site over all windows."""

    rows: int = 0
    rms_sum: float = 0.0
    rms_min: float = float("inf")
    rms_max: float = 0.0
    mean_sum: float = 0.0
    absmax: float = 0.0
    nonfinite: int = 0
    """NaN and infinite values."""
    nonfinite_sure: int = 0
    """Of these, in windows without padded rows of CUDA graphs."""
    embedding: Shares = field(default_factory=Shares)
    """Rows that equal, bit for bit, an embedding output of the same window."""
    drift: Drift = field(default_factory=Drift)

    @property
    def rms_mean(self) -> float:
        return self.rms_sum / self.rows if self.rows else 0.0

    @property
    def mean(self) -> float:
        return self.mean_sum / self.rows if self.rows else 0.0

    @property
    def dead(self) -> bool:
        """Every value of every row was zero."""
        return self.rows > 0 and self.rms_max == 0 and self.absmax == 0 and not self.nonfinite

    @property
    def proven_embedding(self) -> bool:
        """Every row compared equals an embedding output."""
        return self.embedding.rows > 0 and not self.embedding.misses

    def add(self, window: SlotWindow, record: SlotStats, sure: bool, ticks: int) -> None:
        """Fold in one window of this slot."""
        rows = record.rows
        self.rows += rows
        self.rms_sum += window.rms_mean * rows
        self.rms_min = min(self.rms_min, window.rms_min)
        self.rms_max = max(self.rms_max, window.rms_max)
        self.mean_sum += window.mean * rows
        self.absmax = max(self.absmax, window.absmax)
        self.nonfinite += window.nonfinite
        self.nonfinite_sure += window.nonfinite if sure else 0
        # Rows of zeros, as a warm-up may send, are alike everywhere and prove nothing.
        if window.equals_embedding is not None and window.rms_max > 0:
            self.embedding.add(window.equals_embedding, rows, ticks)
        self.drift.add(window, rows, record.wall_s)


@dataclass
class SiteValues:
    """One tapped place over all windows of one process."""

    site: str
    windows: int = 0
    rows: int = 0
    ticks: int = 0
    """Forwards in the windows, lost ones not included."""
    lost_ticks: int = 0
    padded_rows_dropped: int = 0
    unjoined_windows: int = 0
    """Windows of graph replays that may still hold padded rows."""
    tapped_as: Counter[str] = field(default_factory=Counter)
    """Windows per way of tapping."""
    boundaries: list[int] = field(default_factory=list)
    slots: list[SlotValues] = field(default_factory=list)
    same_slots: dict[tuple[int, int], int] = field(default_factory=dict)
    """Pair of slots -> rows of the windows in which they were equal in every row."""
    found: Shares = field(default_factory=Shares)
    """Rows that the target handed out in the same window (draft inputs only)."""
    digests: dict[int, str] = field(default_factory=dict)
    """tick -> digest, the newest."""
    unsure_ticks: set[int] = field(default_factory=set)
    """Ticks in ``digests`` whose rows may include padding."""
    recent: deque[Point] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def tapped(self) -> str:
        """``replay``, ``eager``, or ``mixed``, over all windows."""
        return next(iter(self.tapped_as)) if len(self.tapped_as) == 1 else "mixed"

    @property
    def phase(self) -> str:
        """``prefill``, ``verify``, or empty."""
        return next((p for p in ("prefill", "verify") if f"_{p}" in self.site), "")

    def boundary(self, slot: int) -> int | None:
        """Boundary h of a slot, at the sites that carry aux slots."""
        return self.boundaries[slot] if slot < len(self.boundaries) else None

    def name(self, slot: int) -> str:
        """``slot 1 (boundary h 3)``."""
        h = self.boundary(slot)
        return f"slot {slot}" + ("" if h is None else f" (boundary h {h})")

    def add(self, record: SlotStats) -> None:
        """Fold in one record."""
        ticks = max(0, record.last_tick - record.first_tick + 1)
        sure = record.tapped == "eager" or record.joined
        self.lost_ticks += record.lost_ticks
        if not record.rows:
            return
        self.windows += 1
        self.rows += record.rows
        self.ticks += ticks
        self.padded_rows_dropped += record.padded_rows_dropped
        self.unjoined_windows += not sure
        self.tapped_as[record.tapped] += 1
        self.boundaries = record.boundaries or self.boundaries
        while len(self.slots) < len(record.slots):
            self.slots.append(SlotValues())
        for slot, window in zip(self.slots, record.slots, strict=False):
            slot.add(window, record, sure, ticks)
        for pair in record.same_slots:
            if len(pair) == 2 and _alive(record, pair):
                key = (pair[0], pair[1])
                self.same_slots[key] = self.same_slots.get(key, 0) + record.rows
        if record.found_in_target is not None and sure:
            self.found.add(record.found_in_target, record.rows, ticks)
        self._keep_digests(record, sure)
        self.recent.append(
            Point(
                record.wall_s,
                record.rows,
                tuple(s.rms_mean for s in record.slots),
                tuple(s.nonfinite > 0 for s in record.slots),
            )
        )

    def _keep_digests(self, record: SlotStats, sure: bool) -> None:
        for text, digest in record.tick_digests.items():
            tick = int(text)
            self.digests[tick] = digest
            if not sure:
                self.unsure_ticks.add(tick)
        while len(self.digests) > DIGESTS:
            oldest = next(iter(self.digests))
            del self.digests[oldest]
            self.unsure_ticks.discard(oldest)


def _alive(record: SlotStats, pair: Iterable[int]) -> bool:
    """Slots of zeros are equal without being the same tensor."""
    return all(i < len(record.slots) and record.slots[i].rms_max > 0 for i in pair)


def pool(records: Iterable[SlotStats]) -> dict[str, SiteValues]:
    """Records of one process, pooled per site, in the order values flow through the model."""
    sites: dict[str, SiteValues] = {}
    for record in records:
        values = sites.get(record.site)
        if values is None:
            values = sites[record.site] = SiteValues(record.site)
        values.add(record)
    return {site: sites[site] for site in sorted(sites, key=flow_order)}


_STAGES = (
    re.compile(r"target_embedding$"),
    re.compile(r"aux_"),
    re.compile(r"extend_.*_in$"),
    re.compile(r"extend_.*_fc$"),
    re.compile(r"extend_.*_hidden$"),
    re.compile(r"decode\d+_"),
)


def flow_order(site: str) -> tuple[int, int, int, str]:
    """Sort key: a fault in values appears first at the site that sorts first."""
    stage = next((i for i, pattern in enumerate(_STAGES) if pattern.match(site)), len(_STAGES))
    step = re.match(r"decode(\d+)_", site)
    return (stage, int(step[1]) if step else 0, int(site.endswith("_hidden")), site)
