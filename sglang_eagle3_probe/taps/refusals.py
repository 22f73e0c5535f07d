"""Why drafts were refused (level ``stats``, V2 worker): from the draft's logits to records.

A draft decode step's logits are copied to a buffer where they are made, inside the graph under CUDA
graphs. The first step's come from the extend before: eager code sees them in every release, as the
graph runner hands them out or as the worker leaves them in the logits output it selected from. One
eager launch after verification looks at both sides; nothing waits for the device.

That launch, and keeping the first step's logits, is most of what the tap costs the scheduler's
thread, so it is done in some of the rounds; the copies in the graph are made in every round.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from ..device.drain import Drain
from ..device.layout import row_step
from ..device.refusals import (
    LAYOUT,
    MAX_BYTES,
    DraftLogits,
    Verified,
    inverse_map,
    record_refusals,
)
from ..device.ring import Ring
from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from .counting import Turns
from .draft_built import vocab_size
from .refusal_rounds import Join, RefusalReader
from .tensors import is_capturing, mode_is, shape_of

DRAIN_EVERY_ROUNDS = 64
"""Well below the ring's depth, so that nothing is overwritten before it left."""
DRAIN_EVERY_S = 1.0
"""Where rounds are slow, so that a short run does not end with half its rounds in the ring."""
FIRST_DRAINS = frozenset({2, 4, 8, 16})
"""Counted in rounds that were looked at."""
LOOK_EVERY, LOOK_GAP_S = 5, 0.05
"""Unless asked otherwise: one round in five, and twenty a second at most."""
WAITING = 64
"""Rounds that were launched and not resolved; more than the overlap schedule ever has."""


class RefusalsTap:
    """Buffers, ring and the joining of device ticks to requests."""

    def __init__(self, session: Session) -> None:
        self._session = session
        guard = session.guard
        logits = guard.site("refusal_logits")
        self.built = Tap(logits, after=self._built)
        self.logits = Tap(logits, after=self._logits)
        self.steps = Tap(logits, before=self._steps, after=self._searched)
        self.prefill = Tap(logits, before=self._prefill_begins, after=self._first_ready)
        self.extend = Tap(logits, before=self._extend_begins, after=self._first_ready)
        self.extend_graph = Tap(logits, after=self._extend_replayed)
        self._site = rounds = guard.site("refusals")
        self.verify = Tap(rounds, before=self._verify_before, after=self._verify_after, paired=True)
        self.resolve = Tap(rounds, after=self._resolve)
        self._worker: Any = None
        self._inverse: Any = None
        self._topk = 1
        self._kept: DraftLogits | None = None
        self._ring: Ring | None = None
        self._drain: Drain | None = None
        self._reader: RefusalReader | None = None
        self._in_extend = False
        self._extend_output: Any = None
        self._step = 0
        asked = session.settings.refusal_every
        every = asked or LOOK_EVERY
        # Not the rounds that ``phase_times`` times, where both do one in five.
        self._turns = Turns(every, 0.0 if asked else LOOK_GAP_S, first=every // 2)
        self._turn = (-1, False)
        self._resolved: tuple[Any, int] = (None, 0)
        self._rounds = 0
        """Verify rounds seen."""
        self._ticks = 0
        """Rounds looked at."""
        self._next_drain = DRAIN_EVERY_ROUNDS
        self._next_drain_s = 0.0
        self._waiting: dict[int, tuple[int, Any]] = {}
        self._joins: list[Join] = []
        self._all_fit = True
        """Every request that the server takes at a time has its place in the buffers."""
        self._said: set[str] = set()

    # -- the draft's logits --------------------------------------------------------------------

    def _built(self, call: Call, _result: Any) -> None:
        if getattr(call.instance, "draft_runner", None) is None:
            self._session.say(
                "refusals: SGLang's V1 worker is not looked at, so the report says 'not recorded' "
                "for why drafts were refused; everything else of this level is there. Fix: the V2 "
                "worker (SGLang 0.5.11 and later, without --disable-overlap-schedule)"
            )
            return
        self._worker = call.instance
        hot = getattr(call.instance, "hot_token_id", None)
        target = getattr(getattr(call.instance, "target_worker", None), "model_runner", None)
        width = vocab_size(getattr(target, "model", None))
        if hot is not None and width is not None:
            self._inverse = inverse_map(hot, width)
        self._topk = int(getattr(call.instance, "topk", 1) or 1)

    def _steps(self, _call: Call) -> None:
        # The step is baked into the captured copy, so it is counted from the loop's own begin.
        self._step = 0

    def _searched(self, _call: Call, result: Any) -> None:
        """The search of a tree has ended: where each draft stood in it. Captured with the steps."""
        if self._topk == 1 or self._kept is None or self._kept.trees is None:
            return
        parents, submitted = result[:2]
        # Idle ranks search nothing.
        if submitted is not None and not self._kept.trees.keep(parents, submitted):
            self._note_unseen("tree", submitted)

    def _logits(self, call: Call, result: Any) -> None:
        if self._worker is None or call.instance in self._session.target_logits:
            return
        logits = getattr(result, "next_token_logits", None)
        if logits is None or not logits.shape[0]:
            return
        kept = self._buffers(logits)
        mode = getattr(call.get("logits_metadata"), "forward_mode", None)
        if not mode_is(mode, "is_decode"):
            # Never one that a capture made: holding it would cost the graphs' pool.
            if self._in_extend:
                self._extend_output = result
            return
        self._step += 1
        if kept is not None and not kept.keep_later(self._step, logits):
            self._note_unseen("step", logits)

    def _buffers(self, logits: Any) -> DraftLogits | None:
        """The buffers; made at the first eager draft forward, never while a graph is captured."""
        if self._kept is None and not is_capturing(logits):
            pool: Any = getattr(self._worker, "req_to_token_pool", None)
            if pool is None:
                pool = self._worker.draft_runner.req_to_token_pool
            steps = int(getattr(self._worker, "speculative_num_steps", 1) or 1)
            self._kept = DraftLogits(
                int(pool.req_to_token.shape[0]),
                steps,
                int(logits.shape[1]),
                topk=self._topk,
                nodes=int(getattr(self._worker, "speculative_num_draft_tokens", 1) or 1),
                device=logits.device,
            )
            self._ring = Ring([LAYOUT], logits.device)
            self._drain = Drain(self._ring)
            self._reader = RefusalReader(self._session)
            self._session.say(
                "refusals: draft logits of %d requests and %d steps kept, %.1f MB on %s",
                self._kept.rows,
                self._kept.later.shape[0] + 1,
                self._kept.nbytes / 1e6,
                logits.device,
            )
            self._say_what_does_not_fit(self._kept, int(pool.req_to_token.shape[0]))
        return self._kept

    def _say_what_does_not_fit(self, kept: DraftLogits, requests: int) -> None:
        self._all_fit = kept.rows >= requests
        if not self._all_fit:
            self._session.say(
                "refusals: the server has places for %d requests, and the draft logits of %d fit "
                "into %d MB (topk %d, %d steps, draft vocabulary %d); the causes of the others' "
                "refusals read unknown and are counted as refusal_request, everything else goes "
                "on. Fix: lower --max-running-requests, --speculative-eagle-topk or "
                "--speculative-num-steps to see more of them",
                requests,
                kept.rows,
                MAX_BYTES // (1024 * 1024),
                kept.topk,
                kept.steps,
                kept.vocabulary,
            )

    def _prefill_begins(self, _call: Call) -> None:
        # Its requests may be verified in any later round.
        self._in_extend, self._extend_output = True, None

    def _extend_begins(self, _call: Call) -> None:
        self._in_extend, self._extend_output = self._is_turn(), None

    def _extend_replayed(self, _call: Call, result: Any) -> None:
        if self._in_extend:
            self._extend_output = result

    def _first_ready(self, call: Call, _result: Any) -> None:
        """The extend is enqueued: its selected logits, one row a request, start the next round."""
        if not self._in_extend:
            return
        output, self._extend_output = self._extend_output, None
        self._in_extend = False
        batch = call.get("batch")
        pool = getattr(batch, "req_pool_indices", None)
        logits = getattr(output, "next_token_logits", None)
        if self._kept is None or pool is None or not getattr(batch, "reqs", None):
            return
        if logits is None or not self._kept.keep_first(pool, logits):
            self._note_unseen("extend", logits)

    def _note_unseen(self, what: str, logits: Any) -> None:
        self._session.miss(f"refusal_{what}")
        if what not in self._said:
            self._said.add(what)
            self._session.say(
                "refusals: the logits of a draft %s, %s, are none that can be looked at; ranks are "
                "missing there, everything else goes on",
                what,
                shape_of(logits),
            )

    # -- rounds --------------------------------------------------------------------------------

    def _is_turn(self) -> bool:
        """Whether the next verify round is one to look at; the extend before it asks too."""
        number, is_turn = self._turn
        if number != self._rounds:
            is_turn = self._turns.takes(self._rounds)
            self._turn = (self._rounds, is_turn)
        return is_turn

    def looked_at(self, result: Any) -> int | None:
        """How far apart the rows of a resolved round are that were looked at, 0 for none of them;
        ``None`` where nothing is looked at at all."""
        if self._kept is None or not self._site.enabled:
            return None
        mine, apart = self._resolved
        return apart if mine is not None and mine() is result else 0

    def _verify_before(self, call: Call) -> None:
        batch = call.get("batch")
        if self._kept is None or mode_is(getattr(batch, "forward_mode", None), "is_idle"):
            return
        is_turn = self._is_turn()
        self._rounds += 1
        if not is_turn:
            return
        # Read now: the round puts something else in its place.
        info = getattr(batch, "spec_info", None)
        drafts = getattr(info, "draft_token", None)
        steps = int(getattr(info, "spec_steps", 0) or 0)
        if drafts is not None and steps and getattr(batch, "reqs", None):
            nodes = int(getattr(info, "draft_token_num", 0) or 0)
            call.scratch = (drafts, nodes, steps, int(getattr(info, "topk", 1) or 1))

    def _verify_after(self, call: Call, result: Any) -> None:
        kept, ring, drain = self._kept, self._ring, self._drain
        if kept is None or ring is None or drain is None:
            return
        drafts, nodes, steps, topk = call.scratch
        target = getattr(getattr(result, "logits_output", None), "next_token_logits", None)
        if target is None:
            self._note_unseen("verify", target)
            return
        round_ = Verified(
            accept_lens=result.accept_lens,
            predict=result.next_token_ids,
            drafts=drafts,
            target_logits=target,
            pool_indices=call.get("batch").req_pool_indices,
            inverse=self._inverse,
            nodes=nodes,
            steps=steps,
            topk=topk,
        )
        if not record_refusals(ring, ring.places[0], round_, kept):
            self._note_unseen("verify", target)
            return
        if len(self._waiting) >= WAITING:
            self._session.miss("refusal_round", len(self._waiting))
            self._waiting.clear()
        if not self._all_fit:
            self._count_beyond(call.get("batch"), kept.rows)
        self._waiting[id(result)] = (self._ticks, weakref.ref(result))
        self._ticks += 1
        if self._is_due():
            drain.start()

    def _count_beyond(self, batch: Any, rows: int) -> None:
        requests = enumerate(getattr(batch, "reqs", None) or ())
        beyond = sum(
            row >= rows or (getattr(request, "req_pool_idx", None) or 0) >= rows
            for row, request in requests
        )
        if beyond:
            self._session.miss("refusal_request", beyond)

    def _is_due(self) -> bool:
        """Whether to copy the ring now."""
        now_s = time.monotonic()
        due = self._rounds >= self._next_drain or now_s >= self._next_drain_s
        if not due and self._ticks not in FIRST_DRAINS:
            return False
        self._next_drain = self._rounds + DRAIN_EVERY_ROUNDS
        self._next_drain_s = now_s + DRAIN_EVERY_S
        return True

    def _resolve(self, call: Call, _result: Any) -> None:
        """SGLang has counted the round: now its number is known, and who has ended meanwhile."""
        result = call.get("result")
        tick, launched = self._waiting.pop(id(result), (-1, None))
        # A result that nobody resolved may have left its address to another.
        if launched is not None and launched() is result:
            join = Join(tick, [], [])
            rows = len(getattr(call.get("batch"), "reqs", None) or ())
            self._resolved = (launched, row_step(rows, LAYOUT.max_rows))
            for request in getattr(call.get("batch"), "reqs", None) or ():
                counted = not (request.is_retracted or request.finished())
                join.rids.append(self._session.rid_digest(request.rid) if counted else "")
                join.rounds.append(int(request.spec_verify_ct) - 1)
            self._joins.append(join)
            if len(self._joins) > 2 * LAYOUT.depth:
                # The ring has lost them too, and its reader counts them.
                del self._joins[: LAYOUT.depth]
        if self._drain is not None and self._reader is not None:
            snapshot = self._drain.poll()
            # When the reader is busy, the joins wait for the next snapshot.
            if snapshot is not None and self._reader.put(snapshot, self._joins):
                self._joins = self._joins[-4:]
