"""Every verify round, per request, read where SGLang has just put it on the CPU.

No copy and no synchronisation of ours: the hooked function begins with ``accept_lens.tolist()``
on a CPU tensor (``_resolve_spec_v2_tokens``, 0.5.13 and later; earlier names in the seam table).
"""

from __future__ import annotations

import hashlib
from typing import Any

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.records import VerifyRound

_REMEMBERED_RIDS = 4096


class AcceptanceTap:
    """One ``verify_round`` record per batch and round."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._digests: dict[str, str] = {}
        self.tap = Tap(session.guard.site("acceptance"), after=self._after)

    def _after(self, call: Call, _result: Any) -> None:
        result, batch = call.get("result"), call.get("batch")
        accept_lens = getattr(result, "accept_lens", None)
        requests = getattr(batch, "reqs", None)
        if accept_lens is None or not requests:
            return
        tokens = _tokens_per_request(call, result)
        bonus = int(getattr(result, "num_non_draft_tokens_per_req", 1))
        record = VerifyRound(
            steps=_steps(call, result, tokens),
            topk=_worker_number(call, "topk", 1),
            proposed_drafts=tokens - bonus,
            rids=[],
            rounds=[],
            context_lens=[],
            correct_drafts=[],
        )
        for request, accept_len in zip(requests, accept_lens.tolist(), strict=False):
            rid = self._digest(str(request.rid))
            # The overlap schedule computes a row for requests that ended meanwhile; SGLang counts
            # those nowhere, and neither do we.
            if request.is_retracted or request.finished():
                record.not_counted.append(rid)
                continue
            record.rids.append(rid)
            record.rounds.append(int(request.spec_verify_ct) - 1)
            record.context_lens.append(len(request.origin_input_ids) + len(request.output_ids))
            record.correct_drafts.append(int(accept_len) - bonus)
        self._session.emit(record)

    def _digest(self, rid: str) -> str:
        found = self._digests.get(rid)
        if found is None:
            if len(self._digests) >= _REMEMBERED_RIDS:
                self._digests.clear()
            found = hashlib.blake2b(rid.encode(), digest_size=6).hexdigest()
            self._digests[rid] = found
        return found


def _tokens_per_request(call: Call, result: Any) -> int:
    """Rows verified per request in this round, root included."""
    tokens = getattr(result, "speculative_num_draft_tokens", None)
    if isinstance(tokens, int):
        return tokens
    return _worker_number(call, "speculative_num_draft_tokens", 1)


def _steps(call: Call, result: Any, tokens: int) -> int:
    """Draft positions of this round: adaptive speculation changes them while the server runs."""
    index = getattr(result, "accept_index", None)
    if index is not None and len(index.shape) == 2:
        return int(index.shape[1]) - 1
    if _worker_number(call, "topk", 1) == 1:
        return tokens - 1
    return _worker_number(call, "speculative_num_steps", tokens - 1)


def _worker_number(call: Call, name: str, default: int) -> int:
    owner = call.instance
    for holder in ("model_worker", "draft_worker"):
        value = getattr(getattr(owner, holder, None), name, None)
        if isinstance(value, int):
            return value
    return default
