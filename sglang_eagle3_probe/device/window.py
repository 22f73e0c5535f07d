"""What a stretch of ticks says, per slot. Pure numpy: runs on the thread that writes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import decode, row_step, sampled_rows

DIGESTS = 8
"""Newest ticks of a window whose digests are kept."""


@dataclass(frozen=True)
class SlotSummary:
    """One slot over the rows of a window; see ``trace.records.SlotWindow``."""

    rms_mean: float
    rms_min: float
    rms_max: float
    mean: float
    absmax: float
    nonfinite: int


@dataclass(frozen=True)
class WindowSummary:
    """A site over a window.

    Attributes:
        rows: rows that counted. padded_rows_dropped: sampled rows beyond the real ones.
        fingerprints: [rows, slots] uint64, both 32-bit fingerprints of each record as one number.
        full_rows: [tick, input row, slot, mean, rms, absmax, nonfinite, fingerprint_a] of each
            record, if asked.
    """

    first_tick: int
    last_tick: int
    rows: int
    padded_rows_dropped: int
    slots: tuple[SlotSummary, ...]
    same_slots: tuple[tuple[int, int], ...]
    sampled: bool
    """Some launch had more rows than are kept."""
    fingerprints: NDArray[np.uint64]
    tick_digests: dict[str, str]
    full_rows: list[list[float]] = field(default_factory=list)


def summarise(
    words: NDArray[np.int32],
    first_tick: int,
    max_rows: int,
    real_rows: Mapping[int, int],
    *,
    full: bool = False,
) -> WindowSummary | None:
    """Reduce records to a window.

    Args:
        words: int32 [ticks, max_rows, slots, 8], consecutive ticks from ``first_tick`` on.
        real_rows: tick -> rows of the launch that belong to requests; the rest pads a CUDA graph.
            A tick that is not in it counts whole.
        full: also list every row.

    Returns:
        ``None`` when no row counts.
    """
    ticks, _, slots = words.shape[:3]
    if not ticks:
        return None
    records = decode(words)
    keep = np.zeros((ticks, max_rows), dtype=bool)
    padded, sampled = 0, False
    for index in range(ticks):
        launched = int(records["rows"][index, 0, 0])
        if launched <= 0:
            continue
        step, count = row_step(launched, max_rows), sampled_rows(launched, max_rows)
        real = real_rows.get(first_tick + index, launched)
        good = min(count, -(-real // step)) if real > 0 else 0
        keep[index, :good] = True
        sampled = sampled or step > 1
        padded += count - good
    rows = records[keep]
    if not len(rows):
        return None
    prints = fingerprint_numbers(rows)
    with np.errstate(invalid="ignore", over="ignore"):
        summaries = tuple(_slot(rows[:, slot]) for slot in range(slots))
    same = tuple(
        (a, b)
        for a in range(slots)
        for b in range(a + 1, slots)
        if bool((prints[:, a] == prints[:, b]).all())
    )
    digests = {}
    for index in range(max(0, ticks - DIGESTS), ticks):
        if keep[index].any():
            part = fingerprint_numbers(records[index][keep[index]])
            text = hashlib.blake2b(part.tobytes(), digest_size=8).hexdigest()
            digests[str(first_tick + index)] = text
    return WindowSummary(
        first_tick=first_tick,
        last_tick=first_tick + ticks - 1,
        rows=len(rows),
        padded_rows_dropped=padded,
        slots=summaries,
        same_slots=same,
        sampled=sampled,
        fingerprints=prints,
        tick_digests=digests,
        full_rows=_full_rows(records, keep, first_tick, max_rows) if full else [],
    )


def fingerprint_numbers(records: NDArray[Any]) -> NDArray[np.uint64]:
    """Both fingerprints of each record as one 64-bit number."""
    high = records["fingerprint_a"].astype(np.uint64) << np.uint64(32)
    numbers: NDArray[np.uint64] = high | records["fingerprint_b"].astype(np.uint64)
    return numbers


def share_found(mine: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> float | None:
    """Share of ``mine`` that occurs in ``theirs``; ``None`` when either is empty."""
    if not mine.size or not theirs.size:
        return None
    return float(np.isin(mine, theirs).mean())


def rows_as_one(prints: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """[rows, slots] -> [rows]: one number a row, the same for equal rows of equal slot order."""
    mixed = np.zeros(len(prints), dtype=np.uint64)
    for slot in range(prints.shape[1]):
        mixed = (mixed * np.uint64(0x9E3779B97F4A7C15)) ^ prints[:, slot]
    return mixed


def _slot(rows: NDArray[Any]) -> SlotSummary:
    return SlotSummary(
        rms_mean=_plain(rows["rms"].mean()),
        rms_min=_plain(rows["rms"].min()),
        rms_max=_plain(rows["rms"].max()),
        mean=_plain(rows["mean"].mean()),
        absmax=_plain(rows["absmax"].max()),
        nonfinite=int(rows["nonfinite"].sum(dtype=np.int64)),
    )


def _plain(value: Any) -> float:
    """JSON has no infinity: the greatest float stands for it."""
    number = float(value)
    return number if np.isfinite(number) else float(np.finfo(np.float32).max)


def _full_rows(
    records: NDArray[Any], keep: NDArray[np.bool_], first_tick: int, max_rows: int
) -> list[list[float]]:
    listed = []
    for index, row in zip(*np.nonzero(keep), strict=True):
        step = row_step(int(records["rows"][index, 0, 0]), max_rows)
        for slot in range(records.shape[2]):
            record = records[index, row, slot]
            listed.append(
                [
                    float(first_tick + index),
                    float(row * step),
                    float(slot),
                    _plain(record["mean"]),
                    _plain(record["rms"]),
                    _plain(record["absmax"]),
                    float(record["nonfinite"]),
                    float(record["fingerprint_a"]),
                ]
            )
    return listed
