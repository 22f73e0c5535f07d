"""Aux hidden states as the target's logits processor gets them (``LogitsProcessor.forward``)."""

from __future__ import annotations

from typing import Any

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.records import AuxStates, Phase
from .counting import Milestones
from .tensors import device_of, dtype_of, is_capturing, mode_is, mode_name, shape_of


class AuxStatesTap:
    """Counts, widths, rows and dtype of the aux states per forward mode. Reads shapes only."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._milestones = Milestones()
        self.tap = Tap(session.guard.site("aux_states"), before=self._before, after=self._after)

    def _before(self, call: Call) -> None:
        session = self._session
        if call.instance not in session.target_logits:
            return
        batch = call.get("logits_metadata")
        hidden = call.get("hidden_states")
        aux = call.get("aux_hidden_states")
        mode = getattr(batch, "forward_mode", None)
        if mode_is(mode, "is_idle") or hidden is None:
            return
        plan = session.plans.get(call.instance)
        hidden_width = int(hidden.shape[-1])
        packed = aux is not None and not isinstance(aux, list | tuple)
        widths = _widths(aux, hidden_width)
        sample = hidden if aux is None or not len(aux) else (aux if packed else aux[0])
        phase = _phase(mode)
        capture_mode = mode_name(getattr(batch, "capture_hidden_mode", None))
        capturing = is_capturing(sample)
        rows = int(sample.shape[0])
        key = (phase, mode_name(mode), capture_mode, tuple(widths), packed, capturing)
        tally, record = self._milestones.count(key, rows)
        if not record:
            return
        session.emit(
            AuxStates(
                phase=phase,
                forward_mode=mode_name(mode),
                capture_hidden_mode=capture_mode,
                count=None if aux is None else len(widths),
                packed=packed,
                widths=widths,
                hidden_width=hidden_width,
                rows=rows,
                dtype=dtype_of(sample),
                device=device_of(sample),
                boundaries=list(plan.boundaries) if plan is not None else [],
                reordered=plan is not None and plan.order is not None,
                in_graph_capture=capturing,
                calls=tally.calls,
                rows_total=tally.rows_total,
            )
        )
        if tally.calls == 1:
            if aux is None:
                session.say("%s: no aux hidden states, %d rows", phase, rows)
            else:
                session.say(
                    "%s: %d aux hidden states of widths %s, %d rows, %s%s",
                    phase,
                    len(widths),
                    widths,
                    rows,
                    dtype_of(sample),
                    ", recorded in a graph" if capturing else "",
                )

    def _after(self, call: Call, result: Any) -> None:
        session = self._session
        if call.instance not in session.target_logits:
            return
        batch = call.get("logits_metadata")
        if _phase(getattr(batch, "forward_mode", None)) == "target_prefill":
            session.last_target_prefill = (
                mode_name(getattr(batch, "capture_hidden_mode", None)),
                shape_of(getattr(result, "next_token_logits", None)),
                shape_of(getattr(result, "hidden_states", None)),
            )


def _widths(aux: Any, hidden_width: int) -> list[int]:
    if aux is None:
        return []
    if isinstance(aux, list | tuple):
        return [int(a.shape[-1]) for a in aux]
    count, rest = divmod(int(aux.shape[-1]), hidden_width)
    return [hidden_width] * count if not rest else [int(aux.shape[-1])]


def _phase(mode: Any) -> Phase:
    if mode_is(mode, "is_target_verify"):
        return "target_verify"
    if mode_is(mode, "is_extend"):
        return "target_prefill"
    if mode_is(mode, "is_decode"):
        return "target_decode"
    return "target_other"
