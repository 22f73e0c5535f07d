"""How long the phases of a round take, by batch size: one record about every second.

On CUDA by event pairs around the calls that launch a phase, read when the device has passed them;
every fifth unit of a phase is timed, which keeps the cost on the launching thread to a few
microseconds a round. On a CPU, where the calls are synchronous, by the wall clock, every unit.
"""

from __future__ import annotations

import time
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from ..device.events import EventTimer
from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.acceptance_records import PhaseTime, PhaseTimes
from .tensors import mode_is

Phase = Literal["verify", "draft", "draft_extend", "prefill", "decode"]

EVERY_S = 1.0
IDLE_EVERY_S = 0.2
"""When the last running request ends, what is there is told sooner."""
DEVICE_STRIDE = 5
"""Odd, so that batches that alternate are both timed."""


class Unit(NamedTuple):
    """What was timed."""

    phase: Phase
    batch_size: int


class Shape(NamedTuple):
    """The shape of speculation in force; adaptive speculation changes it while the server runs."""

    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0


class PhaseTimesTap:
    """Taps around the units of work of a round, of a prefill and of plain decoding."""

    def __init__(self, session: Session) -> None:
        self._session = session
        site = session.guard.site("phase_times")
        self.verify = Tap(site, before=self._before_verify, after=self._after)
        self.draft = Tap(site, before=self._before_draft, after=self._after)
        self.extend = Tap(site, before=self._before_extend, after=self._after)
        self.worker = Tap(site, before=self._before_worker, after=self._after)
        self.target = Tap(site, before=self._before_target, after=self._after)
        self.output = Tap(site, after=self._after_output)
        self._events: EventTimer[Unit] | None = None
        self._clock: Literal["device", "host", "none", ""] = ""
        self._seen: dict[Phase, int] = {}
        self._shape = Shape()
        self._samples: dict[Unit, list[float]] = {}
        self._next_s = time.monotonic() + EVERY_S

    # -- units ---------------------------------------------------------------------------------

    def _before_verify(self, call: Call) -> None:
        self._note_shape(call.instance)
        self._begin(call, "verify", _batch(call))

    def _before_draft(self, call: Call) -> None:
        self._note_shape(call.instance)
        self._begin(call, "draft", _batch(call))

    def _before_extend(self, call: Call) -> None:
        self._begin(call, "draft_extend", _batch(call))

    def _before_worker(self, call: Call) -> None:
        batch = _batch(call)
        if mode_is(getattr(batch, "forward_mode", None), "is_extend"):
            self._begin(call, "prefill", batch)

    def _before_target(self, call: Call) -> None:
        # With speculation the phases are those of the workers around it.
        if getattr(self._session.server_args, "speculative_algorithm", None) is not None:
            return
        batch = _batch(call)
        mode = getattr(batch, "forward_mode", None)
        if mode_is(mode, "is_decode"):
            self._begin(call, "decode", batch)
        elif mode_is(mode, "is_extend"):
            self._begin(call, "prefill", batch)

    def _begin(self, call: Call, phase: Phase, batch: Any) -> None:
        mode = getattr(batch, "forward_mode", None)
        requests = getattr(batch, "reqs", None)
        if not requests or mode_is(mode, "is_idle"):
            return
        clock = self._clock or self._choose_clock()
        if clock == "device":
            seen = self._seen.get(phase, 0)
            self._seen[phase] = seen + 1
            # A prefill is long and rare.
            if phase != "prefill" and seen % DEVICE_STRIDE:
                return
        if phase in ("verify", "decode", "prefill"):
            self._collect()
            if time.monotonic() >= self._next_s:
                self._tell()
        unit = Unit(phase, len(requests))
        if clock == "host":
            call.scratch = (unit, time.perf_counter())
        elif self._events is not None:
            pair = self._events.begin()
            if pair is not None:
                call.scratch = (unit, pair)

    def _after(self, call: Call, _result: Any) -> None:
        if call.scratch is None:
            return
        unit, begun = call.scratch
        if self._events is not None:
            self._events.end(begun, unit)
        else:
            self._add(unit, (time.perf_counter() - begun) * 1e3)

    def _after_output(self, call: Call, _result: Any) -> None:
        if not self._samples and self._events is None:
            return
        requests = call.get("reqs") or ()
        if requests and all(request.finished() for request in requests):
            self._collect()
            if time.monotonic() >= self._next_s - EVERY_S + IDLE_EVERY_S:
                self._tell()

    def _note_shape(self, worker: Any) -> None:
        shape = Shape(
            int(getattr(worker, "speculative_num_steps", 0) or 0),
            int(getattr(worker, "topk", 0) or 0),
            int(getattr(worker, "speculative_num_draft_tokens", 0) or 0),
        )
        if shape != self._shape:
            if self._shape != Shape():
                self._tell()
            self._shape = shape

    # -- numbers -------------------------------------------------------------------------------

    def _choose_clock(self) -> Literal["device", "host", "none"]:
        """By the device that serves; other devices than these run asynchronously and go untimed."""
        device = str(getattr(self._session.server_args, "device", "") or "")
        if device == "cuda":
            self._events = EventTimer()
        found: Literal["device", "host", "none"] = (
            "device" if device == "cuda" else "host" if device == "cpu" else "none"
        )
        self._clock = found
        return found

    def _collect(self) -> None:
        if self._events is not None:
            for unit, ms in self._events.arrived():
                self._add(unit, ms)

    def _add(self, unit: Unit, ms: float) -> None:
        samples = self._samples.get(unit)
        if samples is None:
            samples = self._samples[unit] = []
        samples.append(ms)

    def _tell(self) -> None:
        """Hand over what was gathered, and begin anew."""
        self._next_s = time.monotonic() + EVERY_S
        samples, self._samples = self._samples, {}
        not_timed = 0
        if self._events is not None:
            not_timed, self._events.not_timed = self._events.not_timed, 0
        if not samples and not not_timed:
            return
        self._session.emit(
            PhaseTimes(
                clock="device" if self._clock == "device" else "host",
                steps=self._shape.steps,
                topk=self._shape.topk,
                draft_tokens=self._shape.draft_tokens,
                phases=[phase_time(unit, samples[unit]) for unit in sorted(samples)],
                not_timed=not_timed,
            )
        )


def phase_time(unit: Unit, samples_ms: list[float]) -> PhaseTime:
    """One phase at one batch size; at least one sample."""
    return PhaseTime(
        phase=unit.phase,
        batch_size=unit.batch_size,
        count=len(samples_ms),
        mean_ms=fmean(samples_ms),
        least_ms=min(samples_ms),
        median_ms=median(samples_ms),
        greatest_ms=max(samples_ms),
    )


def _batch(call: Call) -> Any:
    """V2 up to 0.5.12.post1 was given a ModelWorkerBatch."""
    batch = call.get("batch")
    return batch if batch is not None else call.get("model_worker_batch")
