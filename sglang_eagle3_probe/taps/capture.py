"""Level ``capture`` (V2 worker): the states of some requests, on their way to files.

Prefill runs eagerly: the aux states that are handed to the draft are copied before it reads them.
A verify round's are the target forward's output, a graph's buffer under CUDA graphs: they are
copied after acceptance, before the next forward. Nothing waits for the device; a copy that finds
no room is a loss that is counted and told.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..capture.folder import CaptureFolder
from ..capture.layout import PieceInfo
from ..device.boundary_rows import BoundaryRows
from ..device.capture_arena import CaptureArena, Parcel
from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Tap
from .capture_choice import Chosen, RequestChoice
from .capture_draft import DraftStepsTap
from .capture_facts import CaptureFacts, RoundShape
from .capture_layers import LayersTap
from .capture_rows import Block, Verify, take_prefill, take_round
from .capture_thread import CaptureThread, EndJob, LostJob, PrefillJob, RoundJob
from .requests import is_greedy, request_end
from .tensors import mode_is

FOLDER = "captures"
"""Below the trace's folder; ``offline.captured`` looks there too."""
WAITING = 64
"""Rounds that were launched and not resolved; more than the overlap schedule ever has."""
V1 = "the V1 worker of SGLang {} is not captured"


class _Taken(NamedTuple):
    """One request's row of a launched round."""

    row: int
    chosen: Chosen
    parcel: Parcel
    info: PieceInfo
    shape: RoundShape


class _Open(NamedTuple):
    """A captured request that has not ended. cached_tokens: found by its first piece."""

    chosen: Chosen
    cached_tokens: int


class _Handed(NamedTuple):
    """One request's rows of a prefill, while the draft reads them. row: in the batch."""

    row: int
    chosen: Chosen
    info: PieceInfo
    tokens: list[int]
    prefix: int
    start: int
    more_chunks: bool
    blocks: list[Block]


class CaptureTap:
    """All handlers of level ``capture`` but those of the draft's steps and the target's layers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        settings = session.settings
        self._choice = RequestChoice(
            settings.capture_first, settings.capture_every, settings.all_layers
        )
        self.draft = DraftStepsTap(session)
        self.layers = LayersTap(session, lambda: self._choice.wants_all_layers)
        guard = session.guard
        self.built = Tap(guard.site("capture_start"), after=self._built)
        prefill = guard.site("capture_prefill")
        self.prefill = Tap(prefill, before=self._prefill_before, after=self._prefill_after)
        rounds = guard.site("capture_rounds")
        self.verify = Tap(rounds, before=self._verify_before, after=self._verify_after)
        self.target = Tap(rounds, after=self._target)
        self.resolve = Tap(rounds, after=self._resolve)
        self.end = Tap(guard.site("capture_end"), before=self._end_before, after=self._end_after)
        self._arena: CaptureArena | None = None
        self._thread: CaptureThread | None = None
        self._facts: CaptureFacts | None = None
        self._base_info: PieceInfo | None = None
        self._open: dict[str, _Open] = {}
        self._in_verify = False
        self._states: Any = None
        self._waiting: dict[int, tuple[Any, list[_Taken]]] = {}

    # -- start ---------------------------------------------------------------------------------

    def _built(self, call: Call, _result: Any) -> None:
        worker, session, settings = call.instance, self._session, self._session.settings
        if getattr(worker, "draft_runner", None) is None:
            session.recorder.count_capture_loss("v1_worker")
            session.warn(
                "capture: %s; everything else goes on. Fix: use SGLang 0.5.13 or later, or "
                "SGLANG_ENABLE_SPEC_V2=1 where the release has it.",
                V1.format(session.release),
            )
            return
        facts = CaptureFacts(session, worker)
        pool: Any = getattr(worker, "req_to_token_pool", None)
        if pool is None:
            pool = worker.draft_runner.req_to_token_pool
        device = getattr(worker, "device", None) or pool.req_to_token.device
        self._arena = CaptureArena(settings.capture_buffer_mb * 1_000_000, device)
        place = Path(settings.dir).absolute() / FOLDER
        folder = None
        if facts.writes_files:
            folder = CaptureFolder(place, facts.process, settings.capture_mb * 1_000_000)
        self._thread = CaptureThread(session, self._arena, folder)
        self.draft.start(worker, int(pool.req_to_token.shape[0]))
        self._facts = facts
        later = f", then one in {settings.capture_every}" if settings.capture_every else ""
        session.say(
            "capture: the first %d requests%s, to %s, at most %d MB; a buffer of %d MB on %s",
            max(settings.capture_first, settings.all_layers),
            later,
            place if folder is not None else "the files of the first rank of its group",
            settings.capture_mb,
            settings.capture_buffer_mb,
            device,
        )

    def _base(self, request: Any, opened: _Open, states: Any) -> PieceInfo | None:
        """What all pieces of a request say; ``None`` without aux hidden states."""
        facts = self._facts
        plan = facts.plan if facts is not None else None
        if facts is None or plan is None:
            return None
        if states.dim() != 2 or states.shape[1] != len(plan.boundaries) * plan.hidden_width:
            return None
        known = self._base_info
        if known is None:
            known = self._base_info = facts.base(plan, states)
        sampling = getattr(request, "sampling_params", None)
        greedy = is_greedy(request) is not False
        return msgspec.structs.replace(
            known,
            request=opened.chosen.request,
            cached_tokens=opened.cached_tokens,
            prompt_tokens=len(request.origin_input_ids),
            greedy=greedy,
            temperature=0.0 if greedy else float(getattr(sampling, "temperature", 0.0) or 0.0),
        )

    # -- prefill -------------------------------------------------------------------------------

    def _prefill_before(self, call: Call) -> None:
        arena, thread = self._arena, self._thread
        batch, states = call.get("batch"), call.get("target_hidden_states")
        if arena is None or thread is None or states is None:
            return
        # ModelWorkerBatch (up to 0.5.12.post1) names these extend_seq_lens, extend_prefix_lens.
        lens = _first(batch, "extend_lens", "extend_seq_lens")
        prefixes = _first(batch, "prefix_lens", "extend_prefix_lens")
        requests = getattr(batch, "reqs", None)
        if not requests or lens is None or prefixes is None:
            return
        handed: list[_Handed] = []
        start = 0
        for row, request in enumerate(requests):
            rows, prefix = int(lens[row]), int(prefixes[row])
            opened = self._opened(request, prefix)
            info = self._base(request, opened, states) if opened is not None and rows else None
            if opened is not None and (info is None or start + rows > states.shape[0]) and rows:
                text = f"a prefill from position {prefix} has other shapes than expected"
                thread.put(LostJob(opened.chosen, "shape", text, rows, piece=True))
            elif opened is not None and info is not None:
                tokens = [*request.origin_input_ids, *request.output_ids]
                boundaries = self._boundaries(opened.chosen)
                handed.append(
                    _Handed(
                        row=row,
                        chosen=opened.chosen,
                        info=info,
                        tokens=tokens,
                        prefix=prefix,
                        start=start,
                        more_chunks=prefix + rows < len(tokens),
                        blocks=take_prefill(arena, states, start, start + rows, boundaries),
                    )
                )
            start += rows
        call.scratch = handed

    def _opened(self, request: Any, prefix: int) -> _Open | None:
        """The captured request, decided at its first prefill; ``None`` if it is not captured."""
        rid = request.rid
        opened = self._open.get(rid)
        if opened is None and self._thread is not None and not self._choice.is_decided(rid):
            # Decided even if nothing more is written, so that ranks go on counting alike.
            chosen = self._choice.decide(rid)
            if chosen is not None and not self._thread.is_full:
                opened = self._open[rid] = _Open(chosen, prefix)
        return opened

    def _boundaries(self, chosen: Chosen) -> BoundaryRows | None:
        rows = self.layers.rows
        return rows if chosen.all_layers and rows is not None and rows.is_whole() else None

    def _why_no_layers(self) -> str:
        rows = self.layers.rows
        if rows is None or not rows.is_whole():
            return "the target's layers, or the whole residual stream, were not seen"
        return f"only the first {rows.rows} rows of a forward are kept"

    def _prefill_after(self, call: Call, _result: Any) -> None:
        arena, thread = self._arena, self._thread
        ids = getattr(call.get("batch"), "input_ids", None)
        next_ids = call.get("next_token_ids")
        if not call.scratch or arena is None or thread is None or ids is None or next_ids is None:
            return
        for handed in call.scratch:
            parcels = [block.parcel for block in handed.blocks if block.parcel is not None]
            for block in handed.blocks:
                if block.parcel is None:
                    continue
                rows = slice(block.start, block.stop)
                arena.on_device(block.parcel, "draft_input_ids").copy_(ids[rows])
                arena.on_device(block.parcel, "next_id").copy_(
                    next_ids[handed.row : handed.row + 1]
                )
            if not arena.send(parcels):
                continue
            for block in handed.blocks:
                self._hand_block(thread, handed, block)

    def _hand_block(self, thread: CaptureThread, handed: _Handed, block: Block) -> None:
        first = handed.prefix + block.start - handed.start
        end = handed.prefix + block.stop - handed.start
        if block.parcel is None:
            text = f"positions {first} to {end - 1} of the prompt did not fit into the buffer"
            thread.put(LostJob(handed.chosen, "buffer", text, block.stop - block.start, piece=True))
            return
        if handed.chosen.all_layers and not block.with_boundaries:
            text = f"positions {first} to {end - 1} have no boundaries: {self._why_no_layers()}"
            thread.put(LostJob(handed.chosen, "layers", text, block.stop - block.start))
        last = block is handed.blocks[-1]
        layers = list(range(self.layers.count)) if block.with_boundaries else []
        info = msgspec.structs.replace(
            handed.info,
            first_position=first,
            more_chunks=handed.more_chunks or not last,
            all_boundaries=layers,
        )
        thread.put(PrefillJob(handed.chosen, info, block.parcel, handed.tokens, first, end))

    # -- rounds --------------------------------------------------------------------------------

    def _verify_before(self, call: Call) -> None:
        batch = call.get("batch")
        self._in_verify, self._states = False, None
        info = getattr(batch, "spec_info", None)
        if self._arena is None or mode_is(getattr(batch, "forward_mode", None), "is_idle"):
            return
        if not self._open:
            return
        rows = []
        for row, request in enumerate(getattr(batch, "reqs", None) or ()):
            opened = self._open.get(request.rid)
            if opened is not None:
                rows.append((row, opened, request))
        if rows and getattr(info, "draft_token", None) is not None:
            # Read now: the round puts something else in its place.
            call.scratch = (rows, info, len(batch.reqs))
            self._in_verify = True

    def _target(self, _call: Call, result: Any) -> None:
        """The target's own output, by node; a tree's is put into another order afterwards."""
        if self._in_verify:
            output = getattr(result, "logits_output", None)
            self._states = getattr(output, "hidden_states", None)

    def _verify_after(self, call: Call, result: Any) -> None:
        states, self._states, self._in_verify = self._states, None, False
        arena, thread, facts = self._arena, self._thread, self._facts
        if call.scratch is None or arena is None or thread is None or facts is None:
            return
        rows, info, requests = call.scratch
        topk = int(getattr(info, "topk", 1) or 1)
        verify = Verify(
            states=states,
            logits=getattr(result.logits_output, "next_token_logits", None),
            drafts=info.draft_token,
            positions=info.positions,
            predict=result.next_token_ids,
            accept_lens=result.accept_lens,
            first_child=getattr(info, "retrieve_next_token", None) if topk > 1 else None,
            next_sibling=getattr(info, "retrieve_next_sibling", None) if topk > 1 else None,
            nodes=int(info.draft_token_num),
            steps=int(info.spec_steps),
            topk=topk,
        )
        whole = verify.is_whole(requests)
        shape = RoundShape(verify.nodes, verify.steps, topk, self.draft.width)
        taken: list[_Taken] = []
        for row, opened, request in rows:
            chosen = opened.chosen
            base = self._base(request, opened, states) if whole else None
            if base is None:
                thread.put(
                    LostJob(chosen, "shape", "a verify round has other shapes than expected")
                )
                continue
            boundaries = self._boundaries(chosen)
            parcel = take_round(arena, verify, row, self.draft.steps, boundaries)
            if parcel is None:
                thread.put(LostJob(chosen, "buffer", "a verify round did not fit into the buffer"))
                continue
            layers = list(range(self.layers.count)) if "boundary_states" in parcel.places else []
            base = msgspec.structs.replace(base, all_boundaries=layers)
            taken.append(_Taken(row, chosen, parcel, base, shape))
        if not arena.send([entry.parcel for entry in taken]):
            self._drop(taken)
        elif taken:
            self._wait(result, taken)

    def _wait(self, result: Any, taken: list[_Taken]) -> None:
        """Until SGLang has counted the round: the overlap schedule computes some in vain."""
        for key, (launched, entries) in list(self._waiting.items()):
            if launched() is None or len(self._waiting) >= WAITING:
                del self._waiting[key]
                self._drop(entries)
        self._waiting[id(result)] = (weakref.ref(result), taken)

    def _drop(self, taken: list[_Taken]) -> None:
        if self._arena is not None:
            for entry in taken:
                self._arena.release(entry.parcel)

    def _resolve(self, call: Call, _result: Any) -> None:
        result, thread = call.get("result"), self._thread
        launched, taken = self._waiting.pop(id(result), (None, []))
        if launched is None or thread is None:
            return
        requests = getattr(call.get("batch"), "reqs", None) or ()
        # A result that nobody resolved may have left its address to another.
        if launched() is not result:
            self._drop(taken)
            return
        for entry in taken:
            request = requests[entry.row] if entry.row < len(requests) else None
            if (
                request is None
                or request.rid != entry.chosen.request
                or request.is_retracted
                or request.finished()
            ):
                self._drop([entry])
                continue
            if entry.chosen.all_layers and not entry.info.all_boundaries:
                text = f"some verify rounds have no boundaries: {self._why_no_layers()}"
                thread.put(LostJob(entry.chosen, "layers", text))
            number = int(request.spec_verify_ct) - 1
            thread.put(RoundJob(entry.chosen, entry.info, entry.shape, entry.parcel, number))

    # -- end -----------------------------------------------------------------------------------

    def _end_before(self, call: Call) -> None:
        skipped = call.get("skip_req")
        call.scratch = [
            request
            for request in call.get("reqs") or ()
            if request is not skipped and request.finished() and not request.finished_output
        ]

    def _end_after(self, call: Call, _result: Any) -> None:
        thread, facts = self._thread, self._facts
        for request in call.scratch or ():
            self._choice.forget(request.rid)
            opened = self._open.pop(request.rid, None)
            if opened is not None and thread is not None and facts is not None:
                output = request_end(request, "").output_tokens
                thread.put(EndJob(opened.chosen, facts.shape(self.draft.width), output))


def _first(owner: Any, *names: str) -> Any:
    for name in names:
        value = getattr(owner, name, None)
        if value is not None:
            return value
    return None
