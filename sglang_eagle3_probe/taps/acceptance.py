"""Every verify round, per request, read where SGLang has just put it on the CPU.

V2 (default from 0.5.11, the only one from 0.5.13): no copy and no synchronisation of ours. The
hooked function begins with ``accept_lens.tolist()`` on a CPU tensor (``_resolve_spec_v2_tokens``,
0.5.13 and later; earlier names in the seam table). V1 synchronises by itself, and its result
carries the numbers as a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.acceptance_records import VerifyRound
from .draft_vocabulary import DraftVocabulary
from .requests import is_greedy, request_start
from .tensors import device_of, mode_is

V1_CORRECT_DRAFTS = (
    "num_correct_drafts_per_req_cpu",
    "num_accepted_drafts_per_req_cpu",
    "accept_length_per_req_cpu",
)
"""0.5.12, 0.5.11 and up to 0.5.10, in that order: the last name means something else later."""

REMEMBERED = 4096
"""Requests whose facts are kept; more than a scheduler runs at once."""


class AcceptanceTap:
    """One ``verify_round`` record per batch and round, and one ``request_start`` per request."""

    def __init__(self, session: Session, vocabulary: DraftVocabulary) -> None:
        self._session = session
        self._vocabulary = vocabulary
        self.looked_at: Callable[[Any], int | None] | None = None
        """Level ``stats``: of a result, how far apart the rows are whose refusals were looked at, 0
        for none of them; ``None`` where nothing ever is."""
        self._known: dict[Any, tuple[str, bool]] = {}
        site = session.guard.site("acceptance")
        self.tap = Tap(site, after=self._after)
        self.v1 = Tap(site, before=self._before_v1, after=self._after_v1)

    def _after(self, call: Call, _result: Any) -> None:
        result, batch = call.get("result"), call.get("batch")
        accept_lens = getattr(result, "accept_lens", None)
        requests = getattr(batch, "reqs", None)
        if accept_lens is None or not requests:
            return
        tokens = _tokens_per_request(call, result)
        bonus = int(getattr(result, "num_non_draft_tokens_per_req", 1))
        accepted = _accepted_tokens(result)
        apart = None if self.looked_at is None else self.looked_at(result)
        known = self._known
        rids: list[str] = []
        rounds: list[int] = []
        context_lens: list[int] = []
        correct_drafts: list[int] = []
        greedy: list[bool] = []
        last_tokens: list[int | None] = []
        looked_at: list[bool] = []
        not_counted: list[str] = []
        # This loop is most of what level wiring costs: no call that one list can save.
        for row, (request, accept_len) in enumerate(
            zip(requests, accept_lens.tolist(), strict=False)
        ):
            facts = known.get(request.rid) or self._facts(request)
            # The overlap schedule computes a row for requests that ended meanwhile. SGLang counts
            # those nowhere from 0.5.12 on (it did before), and neither do we.
            if request.is_retracted or request.finished():
                not_counted.append(facts[0])
                continue
            verified = request.spec_verify_ct
            if verified == 1:
                # A client may use a name again.
                facts = self._facts(request)
                self._session.emit(request_start(request, facts[0]))
            rids.append(facts[0])
            greedy.append(facts[1])
            rounds.append(verified - 1)
            context_lens.append(len(request.origin_input_ids) + len(request.output_ids))
            correct_drafts.append(accept_len - bonus)
            if apart is not None and apart != 1:
                looked_at.append(apart > 0 and row % apart == 0)
            # The accepted path is at the front of a request's rows, the bonus token at its end.
            place = row * tokens + accept_len - 1
            last_tokens.append(accepted[place] if place < len(accepted) else None)
        self._session.emit(
            VerifyRound(
                steps=_steps(call, result, tokens),
                topk=_worker_number(call, "topk", 1),
                proposed_drafts=tokens - bonus,
                rids=rids,
                rounds=rounds,
                context_lens=context_lens,
                correct_drafts=correct_drafts,
                not_counted=not_counted,
                out_of_vocab=self._vocabulary.lacking(last_tokens),
                greedy=greedy,
                looked_at=looked_at,
            )
        )

    def _facts(self, request: Any) -> tuple[str, bool]:
        """Digest, and whether it is greedy: what stays as it is while a request runs."""
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        facts = self._session.rid_digest(request.rid), bool(is_greedy(request))
        self._known[request.rid] = facts
        return facts

    def _before_v1(self, call: Call) -> None:
        """V1 appends the tokens to the requests itself, so their lengths are read beforehand."""
        batch = call.get("batch")
        if mode_is(getattr(batch, "forward_mode", None), "is_decode"):
            call.scratch = [(r, _context_len(r)) for r in getattr(batch, "reqs", None) or ()]

    def _after_v1(self, call: Call, result: Any) -> None:
        correct = _v1_correct_drafts(result)
        if not call.scratch or correct is None or len(correct) != len(call.scratch):
            return
        tokens = int(getattr(call.instance, "speculative_num_draft_tokens", 1))
        for request, _ in call.scratch:
            if int(request.spec_verify_ct) == 1:
                self._session.emit(request_start(request, self._session.rid_digest(request.rid)))
        self._session.emit(
            VerifyRound(
                steps=int(getattr(call.instance, "speculative_num_steps", tokens - 1)),
                topk=int(getattr(call.instance, "topk", 1)),
                proposed_drafts=tokens - 1,
                rids=[self._session.rid_digest(request.rid) for request, _ in call.scratch],
                rounds=[int(request.spec_verify_ct) - 1 for request, _ in call.scratch],
                context_lens=[context_len for _, context_len in call.scratch],
                correct_drafts=[int(count) for count in correct],
                out_of_vocab=self._vocabulary.lacking(
                    [
                        _bonus_token(request, context_len + int(count) + 1)
                        for (request, context_len), count in zip(call.scratch, correct, strict=True)
                    ]
                ),
                greedy=[bool(is_greedy(request)) for request, _ in call.scratch],
            )
        )


def _bonus_token(request: Any, whole_len: int) -> int | None:
    """V1: it is the request's last one, unless the request ended before that."""
    return int(request.output_ids[-1]) if _context_len(request) == whole_len else None


def _context_len(request: Any) -> int:
    return len(request.origin_input_ids) + len(request.output_ids)


def _accepted_tokens(result: Any) -> list[int]:
    """Tokens of the round, by request and position; empty while they are on the device."""
    tokens = getattr(result, "next_token_ids", None)
    if tokens is None or device_of(tokens) != "cpu":
        return []
    flat: list[int] = tokens.tolist()
    return flat


def _v1_correct_drafts(result: Any) -> list[int] | None:
    """Correct drafts per request of a V1 result, bonus excluded; ``None`` after a prefill."""
    for name in V1_CORRECT_DRAFTS:
        value = getattr(result, name, None)
        if value is not None:
            return list(value)
    return None


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
