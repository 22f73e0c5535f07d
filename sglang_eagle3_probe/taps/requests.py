"""Where a request begins and ends for speculation, and what SGLang counted meanwhile."""

from __future__ import annotations

from typing import Any

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.acceptance_records import RequestEnd, RequestStart

CORRECT_DRAFTS = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accepted_tokens")
"""On ``Req``: 0.5.12 and later, 0.5.11, before."""
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_acceptance_histogram")
"""On ``Req``: 0.5.12 and later, before."""


class RequestEndTap:
    """One ``request_end`` record per request, as it is handed to the detokenizer.

    Every finished request passes ``stream_output`` (all releases), on every rank, and SGLang marks
    it ``finished_output`` there, so that the dummy row of the overlap schedule is not sent twice.
    The numbers in ``meta_info`` are read off the request by the same call.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.tap = Tap(session.guard.site("request_end"), before=self._before, after=self._after)

    def _before(self, call: Call) -> None:
        skipped = call.get("skip_req")
        call.scratch = [
            request
            for request in call.get("reqs") or ()
            if request is not skipped and request.finished() and not request.finished_output
        ]

    def _after(self, call: Call, _result: Any) -> None:
        for request in call.scratch or ():
            self._session.emit(request_end(request, self._session.rid_digest(request.rid)))


def request_start(request: Any, rid: str) -> RequestStart:
    """The record of a request at its first verify round.

    SGLang turns temperature 0 into ``top_k`` 1 (``SamplingParams``, all releases): such a request
    is reported with temperature 0, whichever of the two was asked for.
    """
    greedy = is_greedy(request)
    temperature = getattr(getattr(request, "sampling_params", None), "temperature", None)
    cached = getattr(request, "cached_tokens", None)
    pieces = getattr(request, "extend_batch_idx", None)
    return RequestStart(
        rid=rid,
        prompt_tokens=len(request.origin_input_ids),
        cached_tokens=None if cached is None else int(cached),
        chunked_prefill=None if pieces is None else int(pieces) > 1,
        temperature=0.0 if greedy else None if temperature is None else float(temperature),
        greedy=greedy,
        grammar=getattr(request, "grammar", None) is not None,
    )


def request_end(request: Any, rid: str) -> RequestEnd:
    """The record of a finished request."""
    length = getattr(request, "finished_len", None)
    produced = len(request.output_ids)
    kept = produced if length is None else min(int(length), produced)
    correct = _first(request, CORRECT_DRAFTS)
    histogram = _first(request, HISTOGRAM)
    return RequestEnd(
        rid=rid,
        reason=_reason(request.finished_reason),
        output_tokens=kept,
        verify_rounds=int(request.spec_verify_ct),
        correct_drafts=None if correct is None else int(correct),
        histogram=None if histogram is None else [int(count) for count in histogram],
        cut_tokens=produced - kept,
        retractions=int(getattr(request, "retraction_count", 0) or 0),
    )


def is_greedy(request: Any) -> bool | None:
    """Whether the request wants the target's argmax; ``None`` where it does not say."""
    top_k = getattr(getattr(request, "sampling_params", None), "top_k", None)
    return None if top_k is None else bool(top_k <= 1)


def _reason(finished: Any) -> str:
    described = finished.to_json() if hasattr(finished, "to_json") else {}
    return str(described.get("type") or type(finished).__name__)


def _first(request: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = getattr(request, name, None)
        if value is not None:
            return value
    return None
