"""A daemon thread for what has left the device: never touches CUDA, never holds a caller up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ..host.guard import Site

MOST_WAITING = 8


class ReadingThread:
    """Does one job after the other, under a guard site of its own."""

    def __init__(self, site: Site, name: str, miss: Callable[[], None]) -> None:
        """miss: called when a job is dropped, on the thread that handed it over."""
        self._site = site
        self._miss = miss
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(maxsize=MOST_WAITING)
        self.dropped = 0
        """Jobs that found the queue full."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, job: Callable[[], None]) -> bool:
        """Hand a job over; a full queue drops it and counts."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self.dropped += 1
            self._miss()
            return False
        return True

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if self._site.enabled:
                with self._site as site:
                    site.check()
                    job()
