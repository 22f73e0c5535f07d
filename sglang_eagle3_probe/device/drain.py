"""Bring the ring to the host without waiting for the device.

``start`` enqueues one copy on a stream of its own, ``poll`` looks whether a copy has arrived. Both
belong to the thread that launches the host's graphs: event queries from another thread, made while
that one captures a graph, kill the capture. The snapshot is plain numpy and may go anywhere.

Why the copy may run while graph replays go on writing: a launch writes only the ring index of its
own tick, so it can harm no record but the one of ``depth`` ticks ago. Counters come first in the
buffer and are read as the count of *finished* launches; everything else is decided by word 0:

- a record whose word 0 is newer than expected was overwritten before or during the copy: lost;
- a record whose word 0 is older was passed by the copy before it was written (nothing guarantees
  the order in which a copy reads): not lost, the next snapshot has it;
- the launch that may be running overwrites the tick ``depth`` before it: never given out.

So nothing is lost as long as fewer than ``depth`` ticks pass from one copy's begin to the next
one's end.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .layout import SiteLayout
from .ring import Place, Ring

WORD = 0xFFFFFFFF
BUFFERS = 2

MAX_AHEAD = 1 << 16
"""More launches than can pass during one copy. A word 0 further ahead than this is one left behind
2**31 ticks or more ago, in a row that is rarely written."""


@dataclass(frozen=True)
class Snapshot:
    """The ring at one moment. Numpy only: safe to hand to another thread."""

    places: tuple[Place, ...]
    words: NDArray[np.int32]
    """The whole buffer, int32."""
    ticks: tuple[int, ...]
    """Per site: launches finished so far, not wrapped around."""
    started_ns: int
    """time.monotonic_ns() when the copy was enqueued."""

    @property
    def sites(self) -> tuple[SiteLayout, ...]:
        """Layouts of the sites, in index order."""
        return tuple(place.layout for place in self.places)

    def records(self, site: int, since_tick: int) -> tuple[int, NDArray[np.int32], int]:
        """Records of the ticks from ``since_tick`` on.

        Returns (first tick, int32 words [ticks, max_rows, slots, 8], lost ticks). The ticks are
        consecutive; the next call wants ``first tick + len(words)``. Rows that a tick did not
        write are all zero.
        """
        place = self.places[site]
        layout = place.layout
        region = self.words[place.records : place.records + layout.words].reshape(layout.shape)
        end = self.ticks[site]
        since = max(0, since_tick)
        # Launches that finished or began after the counter was copied.
        ahead = _distance(region[..., 0], end)
        newest = end + int(np.where(ahead <= MAX_AHEAD, ahead, 0).max(initial=0))
        oldest = max(since, newest - layout.depth + 1)
        ticks = np.arange(oldest, end, dtype=np.int64)
        words = region[ticks % layout.depth]
        written = _rows_written(words[:, 0, 0, 1], layout.max_rows)
        words = np.where(written[:, :, None, None], words, 0)
        apart = _distance(words[..., 0], ticks[:, None, None] + 1)
        apart = np.where(written[:, :, None], apart, 0)
        overwritten: NDArray[np.bool_] = np.any(apart > 0, axis=(1, 2))
        pending: NDArray[np.bool_] = np.any(apart < 0, axis=(1, 2)) & ~overwritten
        stop = int(pending.argmax()) if pending.any() else len(ticks)
        bad = np.flatnonzero(overwritten[:stop])
        start = int(bad[-1]) + 1 if len(bad) else 0
        first = min(oldest, max(end, since)) + start
        return first, np.ascontiguousarray(words[start:stop]), first - since


def _distance(tags: NDArray[Any], expected: Any) -> NDArray[np.int64]:
    """tags - expected modulo 2**32, as signed numbers."""
    apart: NDArray[np.int64] = (tags.astype(np.int64) - expected) & WORD
    return np.where(apart > WORD >> 1, apart - (WORD + 1), apart)


def _rows_written(rows: NDArray[np.int32], max_rows: int) -> NDArray[np.bool_]:
    """bool [ticks, max_rows]: which rows a launch over ``rows`` rows writes. Row 0 always."""
    # layout.sampled_rows for an array
    step = np.maximum(1, -(-rows // max_rows))
    count = np.maximum(1, -(-rows // step))
    mask: NDArray[np.bool_] = np.arange(max_rows)[None, :] < count[:, None]
    return mask


class Drain:
    """Copies a ring to the host. Allocates in the constructor only; construct it outside capture.

    Every method belongs to the thread that launches the host's work.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.refused: dict[str, int] = {"busy": 0, "capturing": 0}
        """Calls of ``start`` that enqueued nothing."""
        self._cuda = ring.device.type == "cuda"
        words = int(ring.buffer.numel())
        self._hosts = [
            torch.zeros(words, dtype=torch.int32, pin_memory=self._cuda) for _ in range(BUFFERS)
        ]
        self._free = deque(range(BUFFERS))
        self._pending: deque[tuple[int, int]] = deque()
        self._seen = [0] * len(ring.sites)
        if self._cuda:
            self._stream = torch.cuda.Stream(ring.device)
            self._before = torch.cuda.Event()
            self._arrived = [torch.cuda.Event() for _ in range(BUFFERS)]
            # CUDA creates an event when it is first recorded: have that behind us.
            for event in (self._before, *self._arrived):
                event.record(self._stream)

    def start(self) -> bool:
        """Enqueue a copy of what the current stream has been given so far.

        The current stream never waits for the copy. False when both buffers are in use or a
        capture is in progress; ``refused`` counts these.
        """
        if self._capturing():
            self.refused["capturing"] += 1
            return False
        if not self._free:
            self.refused["busy"] += 1
            return False
        slot = self._free.popleft()
        if self._cuda:
            self._before.record(torch.cuda.current_stream(self.ring.device))
            self._stream.wait_event(self._before)
            with torch.cuda.stream(self._stream):
                self._hosts[slot].copy_(self.ring.buffer, non_blocking=True)
                self._arrived[slot].record(self._stream)
        else:
            self._hosts[slot].copy_(self.ring.buffer)
        self._pending.append((slot, time.monotonic_ns()))
        return True

    def poll(self) -> Snapshot | None:
        """The oldest copy that has arrived, or None. Never waits."""
        if not self._pending or self._capturing():
            return None
        slot, started = self._pending[0]
        if self._cuda and not self._arrived[slot].query():
            return None
        self._pending.popleft()
        # A copy of the pinned buffer, which the next transfer reuses.
        words: NDArray[np.int32] = self._hosts[slot].numpy().copy()
        self._free.append(slot)
        for index, place in enumerate(self.ring.places):
            # The device counts modulo 2**32; differences between two looks are small.
            self._seen[index] += (int(words[place.tick]) - self._seen[index]) & WORD
        return Snapshot(self.ring.places, words, tuple(self._seen), started)

    def _capturing(self) -> bool:
        return self._cuda and bool(torch.cuda.is_current_stream_capturing())
