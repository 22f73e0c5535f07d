"""The draft's forward: what width comes in, and whether ``fc`` projects it.

SGLang applies ``fc`` only when the incoming width differs from the embedding width
(``llama_eagle3.LlamaModel.forward`` and ``kimi_k25_eagle3.Eagle3MLAModel.forward``, all releases).
In draft decode steps the draft's own state comes back in and skipping ``fc`` is right; in both
extends it means that the target's states reached the draft unprojected.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..host.call import Call
from ..host.module_hooks import DRAFT_FC
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.records import DraftForward, DraftPhase, FcState
from .counting import Milestones
from .tensors import dtype_of, is_capturing, mode_is


class DraftForwardTap:
    """Counts ``fc`` by a forward hook on it, so that "taken" is what ran, not what was inferred."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._milestones = Milestones()
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._fc_runs = 0
        self.tap = Tap(session.guard.site("draft_forward"), before=self._before, after=self._after)

    def _before(self, call: Call) -> None:
        fc = getattr(call.instance, "fc", None)
        if fc is not None and fc not in self._watched:
            DRAFT_FC.attach(fc, self._fc_ran)
            self._watched.add(fc)
        batch = call.get("forward_batch")
        hidden = getattr(getattr(batch, "spec_info", None), "hidden_states", None)
        # Read now: in draft decode the host puts the next step's states in the same place.
        call.scratch = None if hidden is None else (hidden, self._fc_runs)

    def _fc_ran(self, _module: Any, _inputs: Any, _output: Any) -> None:
        self._fc_runs += 1

    def _after(self, call: Call, _result: Any) -> None:
        if call.scratch is None:
            return
        hidden, runs_before = call.scratch
        model = call.instance
        batch = call.get("forward_batch")
        phase = draft_phase(getattr(batch, "forward_mode", None))
        rows = int(hidden.shape[0])
        if phase is None or rows == 0:
            return
        fc = getattr(model, "fc", None)
        state: FcState = "absent"
        if fc is not None:
            state = "taken" if self._fc_runs > runs_before else "bypassed"
        width_in = int(hidden.shape[-1])
        capturing = is_capturing(hidden)
        key = (phase, type(model).__name__, width_in, state, capturing)
        tally, record = self._milestones.count(key, rows)
        if not record:
            return
        in_features, out_features = fc_features(fc)
        self._session.emit(
            DraftForward(
                phase=phase,
                model_class=type(model).__name__,
                width_in=width_in,
                embed_width=_embed_width(model),
                fc=state,
                fc_in_features=in_features,
                fc_out_features=out_features,
                rows=rows,
                dtype=dtype_of(hidden),
                calls=tally.calls,
                rows_total=tally.rows_total,
                in_graph_capture=capturing,
            )
        )
        if tally.calls == 1:
            right = (state == "taken") != (phase == "decode")
            self._session.say(
                "draft %s: width %d in, fc %s (%s)%s",
                phase,
                width_in,
                state,
                "right" if right else "WRONG: the draft reads states it was not trained on",
                ", recorded in a graph" if capturing else "",
            )


def fc_features(fc: Any) -> tuple[int | None, int | None]:
    """Input and output width of a draft's ``fc``.

    ``nn.Linear`` in llama_eagle3, ``ColumnParallelLinear`` in kimi_k25_eagle3 (0.5.15 and later),
    whose ``output_size`` is the whole width although each rank computes its part.
    """
    if fc is None:
        return None, None
    inputs = getattr(fc, "in_features", getattr(fc, "input_size", None))
    outputs = getattr(fc, "out_features", getattr(fc, "output_size", None))
    return (
        int(inputs) if inputs is not None else None,
        int(outputs) if outputs is not None else None,
    )


def _embed_width(model: Any) -> int:
    embed = getattr(model, "embed_tokens", None)
    width = getattr(embed, "embedding_dim", None)
    if width is None:
        width = getattr(getattr(model, "config", None), "hidden_size", None)
    return -1 if width is None else int(width)


def draft_phase(mode: Any) -> DraftPhase | None:
    """What a draft forward is for; ``None`` for idle and unknown modes."""
    if mode_is(mode, "is_idle"):
        return None
    if mode_is(mode, "is_draft_extend_v2") or mode_is(mode, "is_draft_extend"):
        return "extend_verify"
    if mode_is(mode, "is_decode"):
        return "decode"
    return "extend_prefill" if mode_is(mode, "is_extend") else None
