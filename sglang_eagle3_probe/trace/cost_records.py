"""What the probe itself costs the server."""

from __future__ import annotations

import msgspec

from sglang_eagle3_probe.trace.record_base import Record


class SeamCost(msgspec.Struct, kw_only=True):
    """Our own time around one wrapped function; the host's call is taken out."""

    seam: str
    calls: int
    timed_calls: int = 0
    """0 in traces of before it was kept: all were timed."""
    total_us: float
    """Of all calls: the timed ones' sum times ``calls / timed_calls``."""


class ProbeCost(Record, tag="probe_cost", kw_only=True):
    """Time that the probe took on the scheduler's thread, and on threads of its own.

    Device time of the taps in CUDA graphs (level ``stats``) is not in it: nothing measures that
    without changing it. Both clocks are the host's.
    """

    window_s: float
    """Wall time that this record covers: since the one before, or since the first wrapped call."""
    seams: list[SeamCost]
    """Every seam called in the window."""
    threads_cpu_ms: dict[str, float]
    """Thread name -> CPU time in the window. They share the interpreter with the scheduler."""
