"""What the draft keeps at each step of its loop, for capture (V2 worker).

``select_top_k_tokens`` (every release) returns the candidates kept, their scores and the states
they were drawn from. A chain does not pass there in every case (0.5.17 and later, on CUDA without a
vocabulary map), so its states are taken where they are made: the extend before the loop hands over
the first, each draft forward puts out the next.
"""

from __future__ import annotations

from typing import Any

from ..device.draft_steps import DraftSteps
from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from .tensors import is_capturing, mode_is


class DraftStepsTap:
    """Keeps each step's values in buffers, inside the graph where there is one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        site = session.guard.site("capture_draft")
        self.draft = Tap(site, before=self._draft)
        self.begin = Tap(site, before=self._begin)
        self.select = Tap(site, after=self._selected)
        self.logits = Tap(site, after=self._logits)
        self._worker: Any = None
        self._rows = 0
        self._step = 0
        self.steps: DraftSteps | None = None
        """Made at the first eager draft round."""

    def start(self, worker: Any, rows: int) -> None:
        """Watch a V2 draft worker whose batches have at most that many requests."""
        self._worker, self._rows = worker, rows

    @property
    def width(self) -> int:
        """Of the draft's recurrent state; 0 before it was seen."""
        return self.steps.width if self.steps is not None else 0

    def _buffers(self, hidden: Any) -> DraftSteps | None:
        if self.steps is None and self._worker is not None and not is_capturing(hidden):
            worker = self._worker
            self.steps = DraftSteps(
                self._rows,
                max(1, int(getattr(worker, "speculative_num_steps", 1) or 1)),
                int(getattr(worker, "topk", 1) or 1),
                int(hidden.shape[-1]),
                hidden.dtype,
                hidden.device,
            )
        return self.steps

    def _draft(self, call: Call) -> None:
        """A round begins: a chain's first state is what the extend handed over."""
        batch = call.get("batch") or call.get("model_worker_batch")
        hidden = getattr(getattr(batch, "spec_info", None), "hidden_states", None)
        if hidden is None or not hidden.shape[0] or not getattr(batch, "reqs", None):
            return
        steps = self._buffers(hidden)
        if steps is not None and steps.topk == 1:
            steps.keep("hidden", 0, hidden)

    def _begin(self, _call: Call) -> None:
        # The step is baked into the captured copies, so it is counted from the loop's own begin.
        self._step = 0

    def _selected(self, call: Call, result: Any) -> None:
        step = call.get("i")
        if self._worker is None or not isinstance(step, int):
            return
        ids, hidden, scores = result[0], result[1], result[2]
        if hidden is None or not hidden.shape[0]:
            return
        steps = self._buffers(hidden)
        if steps is None:
            return
        steps.keep("ids", step, ids)
        steps.keep("scores", step, scores)
        if steps.topk > 1:
            steps.keep("hidden", step, hidden)

    def _logits(self, call: Call, result: Any) -> None:
        if self._worker is None or call.instance in self._session.target_logits:
            return
        mode = getattr(call.get("logits_metadata"), "forward_mode", None)
        hidden = getattr(result, "hidden_states", None)
        if not mode_is(mode, "is_decode") or hidden is None or not hidden.shape[0]:
            return
        self._step += 1
        steps = self._buffers(hidden)
        if steps is not None and steps.topk == 1:
            steps.keep("hidden", self._step, hidden)
