"""Values of aux states, draft inputs and draft states (level ``stats``), also under CUDA graphs.

Each handler launches one small kernel per tensor. When SGLang captures a graph, the launch is
captured with it, and every replay records its own values: Python does not run then.
"""

from __future__ import annotations

from typing import Any

from ..host.call import Call
from ..host.module_hooks import DRAFT_FC, TARGET_EMBEDDING
from ..host.session import Session
from ..host.wrapping import Tap
from .draft_forward import draft_phase
from .site_clock import SiteClock
from .stats_ring import EMBEDDING, StatsRing
from .tensors import is_capturing, mode_is


class SlotStatsTap:
    """All handlers of level ``stats``; they share one ring, made at the first eager forward."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ring: StatsRing | None = None
        self._units: dict[str, SiteClock] = {}
        self._watched: set[int] = set()
        self._fc_output: Any = None
        self._decode_step = 0
        guard = session.guard
        self.target = Tap(guard.site("stats_target"), after=self._target)
        self.draft = Tap(
            guard.site("stats_draft"), before=self._draft_before, after=self._draft_after
        )
        rounds = guard.site("stats_rounds")
        self.verify = Tap(rounds, before=self._verify_before, after=self._verify_after, paired=True)
        self.draft_round = Tap(
            rounds, before=self._draft_round, after=self._draft_round_after, paired=True
        )
        self.draft_steps = Tap(rounds, before=self._draft_steps)
        self.extend = Tap(rounds, before=self._extend_before, after=self._extend_after)
        self.prefill = Tap(rounds, before=self._prefill_before, after=self._prefill_after)
        self.resolve = Tap(rounds, after=self._resolve)

    def _ring_for(self, tensor: Any) -> StatsRing | None:
        """The ring; made here at the first eager forward, never while a graph is captured."""
        if self._ring is None and not is_capturing(tensor):
            plans = list(self._session.plans.values())
            slots = len(plans[0].boundaries) if plans else 1
            self._ring = StatsRing(self._session, slots, tensor.device)
            self._units = self._ring.units
            self._session.say(
                "statistics: a ring of %.1f MB on %s",
                self._ring.ring.nbytes / 1e6,
                tensor.device,
            )
        return self._ring

    def watch_embedding(self, model: Any) -> None:
        """Tap what the target's embedding puts out, before layer 0 may overwrite it."""
        embed = getattr(getattr(model, "model", None), "embed_tokens", None)
        if embed is None or id(embed) in self._watched:
            return
        self._watched.add(id(embed))
        site = self._session.guard.site("stats_target")

        def ran(_module: Any, _inputs: Any, output: Any) -> None:
            if site.enabled:
                with site:
                    ring = self._ring_for(output)
                    if ring is not None:
                        ring.tap(EMBEDDING, output)

        TARGET_EMBEDDING.attach(embed, ran)

    def _target(self, call: Call, result: Any) -> None:
        if call.instance not in self._session.target_logits:
            return
        mode = getattr(call.get("logits_metadata"), "forward_mode", None)
        # Packed, in the order of the list, and one tensor whatever the family captures into.
        states = getattr(result, "hidden_states", None)
        if states is None or call.get("aux_hidden_states") is None:
            return
        verify = mode_is(mode, "is_target_verify")
        if not verify and not mode_is(mode, "is_extend"):
            return
        ring = self._ring_for(states)
        if ring is not None:
            ring.tap("aux_verify" if verify else "aux_prefill", states)

    def _draft_before(self, call: Call) -> None:
        batch = call.get("forward_batch")
        hidden = getattr(getattr(batch, "spec_info", None), "hidden_states", None)
        prefix = self._prefix(getattr(batch, "forward_mode", None))
        call.scratch = prefix
        if hidden is None or prefix is None or not hidden.shape[0]:
            return
        ring = self._ring_for(hidden)
        if ring is not None:
            ring.tap(f"{prefix}_in", hidden)
        fc = getattr(call.instance, "fc", None)
        if fc is not None and id(fc) not in self._watched:
            self._watched.add(id(fc))
            DRAFT_FC.attach(fc, self._keep_fc_output)
        self._fc_output = None

    def _keep_fc_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        # ColumnParallelLinear returns (output, bias).
        self._fc_output = output[0] if isinstance(output, tuple) else output

    def _draft_after(self, call: Call, result: Any) -> None:
        prefix, ring = call.scratch, self._ring
        fc_output, self._fc_output = self._fc_output, None
        if prefix is None or ring is None:
            return
        if fc_output is not None and not prefix.startswith("decode"):
            ring.tap(f"{prefix}_fc", fc_output)
        aux = result[1] if isinstance(result, tuple) and len(result) > 1 else None
        if aux:
            ring.tap(f"{prefix}_hidden", aux[0])

    def _prefix(self, mode: Any) -> str | None:
        """How this forward's sites are called: its phase, with the step's number in decode."""
        phase = draft_phase(mode)
        if phase != "decode":
            return phase
        step, self._decode_step = self._decode_step, self._decode_step + 1
        return f"decode{step}"

    def _draft_steps(self, _call: Call) -> None:
        # The step is baked into the captured launch, so it is counted from the loop's own begin.
        self._decode_step = 0

    def _begin(self, leader: str) -> None:
        clock = self._units.get(leader)
        if clock is not None:
            clock.begin()

    def _end(self, leader: str, rows: int | None, requests: tuple[Any, ...] = ()) -> None:
        clock = self._units.get(leader)
        if clock is not None:
            clock.end(rows, requests)

    def _verify_before(self, call: Call) -> None:
        batch = call.get("batch")
        if not mode_is(getattr(batch, "forward_mode", None), "is_idle"):
            # Read now: V1 removes requests that end in this round.
            call.scratch = tuple([r.rid for r in getattr(batch, "reqs", None) or ()])
            self._begin("aux_verify")

    def _verify_after(self, call: Call, _result: Any) -> None:
        if self._ring is None or not call.scratch:
            return
        self._end("aux_verify", len(call.scratch) * self._tokens(call), call.scratch)
        self._ring.round_done()

    def _draft_round(self, call: Call) -> None:
        call.scratch = _batch_size(call.get("batch") or call.get("model_worker_batch"))
        if call.scratch:
            self._begin("decode0_in")

    def _draft_round_after(self, call: Call, _result: Any) -> None:
        if call.scratch:
            self._end("decode0_in", call.scratch * int(getattr(call.instance, "topk", 1)))

    def _extend_before(self, call: Call) -> None:
        batch = call.get("batch")
        requests = _batch_size(batch)
        if not requests:
            return
        if call.get("batch_result") is not None:
            call.scratch = requests * self._tokens(call)
        else:
            # V1 extends by the accepted tokens alone; their states are gathered by now, and a
            # graph's rows beyond them hold what an earlier round left there.
            states = getattr(getattr(batch, "spec_info", None), "hidden_states", None)
            call.scratch = int(states.shape[0]) if states is not None else None
            if call.scratch == 0:
                return
        self._begin("extend_verify_in")

    def _extend_after(self, call: Call, _result: Any) -> None:
        self._end("extend_verify_in", call.scratch)

    def _prefill_before(self, _call: Call) -> None:
        self._begin("extend_prefill_in")

    def _prefill_after(self, call: Call, _result: Any) -> None:
        handed = call.get("target_hidden_states")
        self._end("extend_prefill_in", int(handed.shape[0]) if handed is not None else None)

    def _resolve(self, _call: Call, _result: Any) -> None:
        if self._ring is not None:
            self._ring.poll()

    def _tokens(self, call: Call) -> int:
        return int(getattr(call.instance, "speculative_num_draft_tokens", 1) or 1)


def _batch_size(batch: Any) -> int:
    if mode_is(getattr(batch, "forward_mode", None), "is_idle"):
        return 0
    return len(getattr(batch, "reqs", None) or ())
