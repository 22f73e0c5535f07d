"""Time device work by event pairs, without ever waiting for it.

A pair is recorded around the launches on the current stream, its end is asked now and then whether
the device has passed it, and only then is the time read. Everything belongs to the thread that
launches: event queries from another thread, made while that one captures a graph, kill the capture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

PAIRS = 64

Tag = TypeVar("Tag")


def cuda_event() -> Any:
    """An event that can be timed. CUDA makes it when it is first recorded."""
    import torch

    return torch.cuda.Event(enable_timing=True)


def cuda_capturing() -> bool:
    """Whether a graph is being captured on the current stream."""
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


class EventTimer(Generic[Tag]):
    """A fixed pool of event pairs; what finds none free is counted and goes untimed."""

    def __init__(
        self,
        make_event: Callable[[], Any] = cuda_event,
        capturing: Callable[[], bool] = cuda_capturing,
        pairs: int = PAIRS,
    ) -> None:
        """Construct it outside capture.

        Args:
            make_event: gives objects with ``record()``, ``query()`` and ``elapsed_time(end)`` (ms).
        """
        self._capturing = capturing
        self._free: deque[tuple[Any, Any]] = deque(
            (make_event(), make_event()) for _ in range(pairs)
        )
        self._pending: deque[tuple[Tag, Any, Any]] = deque()
        self.not_timed = 0
        """Units that found every pair in use, since this was last set to 0."""

    def begin(self) -> tuple[Any, Any] | None:
        """Mark the begin of a unit; ``None`` when it cannot be timed."""
        if self._capturing():
            return None
        if not self._free:
            self.not_timed += 1
            return None
        pair = self._free.popleft()
        pair[0].record()
        return pair

    def end(self, pair: tuple[Any, Any], tag: Tag) -> None:
        """Mark the end of a unit that ``begin`` gave a pair for."""
        pair[1].record()
        self._pending.append((tag, *pair))

    def arrived(self) -> Iterator[tuple[Tag, float]]:
        """(tag, ms) of the units that the device has finished, oldest first. Never waits."""
        while self._pending and not self._capturing():
            tag, start, end = self._pending[0]
            if not end.query():
                return
            self._pending.popleft()
            self._free.append((start, end))
            yield tag, float(start.elapsed_time(end))
