"""The target's prefill and its hand-over to the draft.

V1 (0.5.9 to 0.5.12.post1): ``EAGLEWorker.forward_target_extend`` returns logits output first, next
token ids second, then more, whose number differs by release: read by index, never unpacked.
V2: the successor is ``EagleDraftWorker._draft_extend_for_prefill``, which receives the same states.
"""

from __future__ import annotations

from typing import Any, Literal

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.records import TargetExtend
from .counting import Milestones
from .tensors import mode_is, mode_name, shape_of


class TargetExtendTap:
    """Shapes on both sides of the hand-over."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._milestones = Milestones()
        site = session.guard.site("target_extend")
        self._returned: tuple[str, list[int] | None, list[int] | None] | None = None
        self.v1_target = Tap(site, after=self._after_v1_target)
        self.v1_draft = Tap(site, before=self._before_v1_draft)
        self.v2 = Tap(site, before=self._before_v2)

    def _after_v1_target(self, call: Call, result: Any) -> None:
        logits_output = result[0]
        seen = self._session.last_target_prefill
        self._returned = (
            seen[0] if seen is not None else "",
            shape_of(getattr(logits_output, "next_token_logits", None)),
            shape_of(getattr(logits_output, "hidden_states", None)),
        )

    def _before_v1_draft(self, call: Call) -> None:
        self._record("V1", self._returned, call.get("batch"), call.get("hidden_states"), call)

    def _before_v2(self, call: Call) -> None:
        returned = self._session.last_target_prefill
        self._record("V2", returned, call.get("batch"), call.get("target_hidden_states"), call)

    def _record(
        self,
        generation: Literal["V1", "V2"],
        returned: tuple[str, list[int] | None, list[int] | None] | None,
        batch: Any,
        handed: Any,
        call: Call,
    ) -> None:
        mode = getattr(batch, "forward_mode", None)
        if mode_is(mode, "is_idle"):
            return
        handed_shape = shape_of(handed)
        rows = handed_shape[0] if handed_shape else 0
        width = handed_shape[-1] if handed_shape else None
        capture_mode, logits_shape, hidden_shape = returned or ("", None, None)
        tally, record = self._milestones.count((generation, capture_mode, width), rows)
        if not record:
            return
        # ModelWorkerBatch (V2 up to 0.5.12.post1) names it extend_seq_lens.
        extend_lens = getattr(batch, "extend_lens", getattr(batch, "extend_seq_lens", None))
        requests = getattr(batch, "reqs", None)
        self._session.emit(
            TargetExtend(
                worker_generation=generation,
                capture_hidden_mode=capture_mode,
                logits_shape=logits_shape,
                hidden_states_shape=hidden_shape,
                handed_hidden_states_shape=handed_shape,
                next_token_ids_shape=shape_of(call.get("next_token_ids")),
                batch_size=len(requests) if requests is not None else None,
                extend_lens=[int(n) for n in extend_lens] if extend_lens is not None else None,
                calls=tally.calls,
            )
        )
        if tally.calls == 1:
            self._session.say(
                "target extend (%s): capture mode %s, target returns %s, draft is handed %s",
                generation,
                capture_mode or mode_name(mode) or "unknown",
                hidden_shape,
                handed_shape,
            )
