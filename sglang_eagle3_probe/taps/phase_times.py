"""How long the phases of a round take, by batch size: one record about every second.

On CUDA by event pairs around the calls that launch a phase, read when the device has passed them;
every fifth unit of a phase is timed, and twenty a second at most, which keeps the cost on the
launching thread to a few microseconds a round. On a CPU, where the calls are synchronous, by the
wall clock, every unit.
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
from .counting import Turns
from .tensors import mode_is

Phase = Literal["verify", "draft", "draft_extend", "prefill", "decode"]

EVERY_S = 1.0
IDLE_EVERY_S = 0.2
"""When the last running request ends, what is there is told sooner."""
DEVICE_STRIDE, DEVICE_GAP_S = 5, 0.05
"""Odd, so that batches that alternate are both timed."""
PHASES = ("verify", "draft", "draft_extend", "decode")
"""Those that come in every round."""


class Unit(NamedTuple):
    """What was timed."""

    phase: Phase
    batch_size: int


def device_turns() -> dict[str, Turns]:
    """Which units are timed on a GPU, by phase."""
    return {phase: Turns(DEVICE_STRIDE, DEVICE_GAP_S) for phase in PHASES}


Begun = tuple[Unit, Any]
"""A unit and when it began: seconds, or an event pair."""


class Shape(NamedTuple):
    """The shape of speculation in force; adaptive speculation changes it while the server runs."""

    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0


class PhaseTimesTap:
    """Handlers around the units of work of a round, of a prefill and of plain decoding."""

    def __init__(self, session: Session) -> None:
        self._session = session
        site = session.guard.site("phase_times")
        self.verify = Tap(site, before=self._verify, after=self._end, paired=True)
        self.draft = Tap(site, before=self._draft, after=self._end, paired=True)
        self.extend = Tap(site, before=self._extend, after=self._end, paired=True)
        self.worker = Tap(site, before=self._prefill, after=self._end, paired=True)
        self.target = Tap(site, before=self._plain, after=self._end, paired=True)
        self.output = Tap(site, after=self._after_output)
        self._events: EventTimer[Unit] | None = None
        self._clock: Literal["device", "host", "none", ""] = ""
        self._turns = {phase: Turns(1) for phase in PHASES}
        self._seen = dict.fromkeys(PHASES, -1)
        self._shape = Shape()
        self._samples: dict[Unit, list[float]] = {}
        self._next_s = time.monotonic() + EVERY_S

    # -- units ---------------------------------------------------------------------------------

    def _verify(self, call: Call) -> None:
        if self._passed_over("verify"):
            return
        self._note_shape(call.instance)
        self._look()
        call.scratch = self._begin("verify", _batch(call))

    def _draft(self, call: Call) -> None:
        if self._passed_over("draft"):
            return
        self._note_shape(call.instance)
        call.scratch = self._begin("draft", _batch(call))

    def _extend(self, call: Call) -> None:
        if not self._passed_over("draft_extend"):
            call.scratch = self._begin("draft_extend", _batch(call))

    def _prefill(self, call: Call) -> None:
        batch = _batch(call)
        if batch is not None and batch.forward_mode.is_extend():
            self._look()
            call.scratch = self._begin("prefill", batch)

    def _plain(self, call: Call) -> None:
        # With speculation the phases are those of the workers around it.
        if getattr(self._session.server_args, "speculative_algorithm", None) is not None:
            return
        batch = _batch(call)
        mode = getattr(batch, "forward_mode", None)
        if mode_is(mode, "is_decode"):
            if not self._passed_over("decode"):
                self._look()
                call.scratch = self._begin("decode", batch)
        elif mode_is(mode, "is_extend"):
            self._look()
            call.scratch = self._begin("prefill", batch)

    def _passed_over(self, phase: str) -> bool:
        seen = self._seen[phase] = self._seen[phase] + 1
        return not self._turns[phase].takes(seen)

    def _begin(self, phase: Phase, batch: Any) -> Begun | None:
        # Idle ranks have no requests.
        requests = getattr(batch, "reqs", None)
        if not requests:
            return None
        clock = self._clock or self._choose_clock()
        unit = Unit(phase, len(requests))
        if clock == "host":
            return unit, time.perf_counter()
        pair = self._events.begin() if self._events is not None else None
        return None if pair is None else (unit, pair)

    def _end(self, call: Call, _result: Any) -> None:
        unit, since = call.scratch
        if self._events is not None:
            self._events.end(since, unit)
        else:
            self._add(unit, (time.perf_counter() - since) * 1e3)

    def _look(self) -> None:
        """Take what has arrived, and tell it when it is time."""
        self._collect()
        if time.monotonic() >= self._next_s:
            self._tell()

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
            self._turns = device_turns()
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
