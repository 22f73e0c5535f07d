"""Puts the pieces of captured requests together and writes them, on a thread of its own.

Never touches CUDA: that a transfer has arrived is read off pinned memory
(``device.capture_arena``).
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..capture.assembly import boundary_fault, no_rounds, rounds_tensors
from ..capture.folder import BudgetReached, CaptureFolder
from ..capture.layout import PieceInfo
from ..capture.writing import piece_bytes
from ..device.capture_arena import CaptureArena, Parcel
from ..host.session import Session
from ..settings import PREFIX
from ..trace.capture_records import Capture, CapturePiece
from .capture_choice import Chosen
from .capture_facts import RoundShape

ROUNDS_PER_PIECE = 64
BYTES_PER_PIECE = 64 * 1024 * 1024
ARRIVES_WITHIN_S = 30.0
LOOK_EVERY_S = 0.002


@dataclass(frozen=True)
class PrefillJob:
    """A piece of a prompt. tokens: the request's, up to the end of this prefill and beyond.
    first, end: positions of the piece."""

    chosen: Chosen
    info: PieceInfo
    parcel: Parcel
    tokens: list[int]
    first: int
    end: int


@dataclass(frozen=True)
class RoundJob:
    """A verify round that SGLang has counted. number: of the round within its request."""

    chosen: Chosen
    info: PieceInfo
    shape: RoundShape
    parcel: Parcel
    number: int


@dataclass(frozen=True)
class LostJob:
    """Rows or rounds that could not be taken. text: in words, for the next piece."""

    chosen: Chosen
    reason: str
    text: str
    count: int = 1
    piece: bool = False
    """A whole piece is missing: its number is left out, so that readers see the hole."""


@dataclass(frozen=True)
class EndJob:
    """The request has ended. shape: of an empty last piece, should there have been no round."""

    chosen: Chosen
    shape: RoundShape
    output_tokens: int


Job = PrefillJob | RoundJob | LostJob | EndJob


@dataclass
class _Open:
    """A request whose pieces are being written."""

    info: PieceInfo | None = None
    shape: RoundShape | None = None
    piece: int = 0
    written: int = 0
    nbytes: int = 0
    first_file: str = ""
    told_prompt: bool = False
    rounds: list[dict[str, Any]] = field(default_factory=list)
    all_rounds: int = 0
    texts: list[str] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)


class CaptureThread:
    """One per process."""

    def __init__(
        self,
        session: Session,
        arena: CaptureArena,
        folder: CaptureFolder | None,
    ) -> None:
        """
        Args:
            folder: ``None`` on ranks that only write digests.
        """
        self._session = session
        self._arena = arena
        self._folder = folder
        self._site = session.guard.site("capture_writer")
        self._open: dict[int, _Open] = {}
        self._said: set[str] = set()
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.is_full = False
        """Nothing more will be written: do not capture more requests."""
        threading.Thread(target=self._run, name="eagle3-probe-capture", daemon=True).start()

    def put(self, job: Job) -> None:
        """Hand a job over. The arena bounds how much can wait."""
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if self._site.enabled:
                    with self._site as site:
                        site.check()
                        self._do(job)
            finally:
                if isinstance(job, PrefillJob | RoundJob):
                    self._arena.release(job.parcel)

    def _do(self, job: Job) -> None:
        entry = self._open.setdefault(job.chosen.number, _Open())
        if isinstance(job, LostJob):
            if job.piece:
                self._flush(job.chosen, entry)
            self._lose(entry, job.reason, job.text, job.count)
            entry.piece += job.piece
        elif isinstance(job, PrefillJob):
            self._flush(job.chosen, entry)
            entry.info = job.info
            tensors = self._fetch(entry, job.parcel)
            if tensors is not None:
                self._write_prefill(job, entry, tensors)
        elif isinstance(job, RoundJob):
            self._add_round(job, entry)
        else:
            self._end(job, entry)

    def _fetch(self, entry: _Open, parcel: Parcel) -> dict[str, Any] | None:
        deadline_s = time.monotonic() + ARRIVES_WITHIN_S
        while not self._arena.has_arrived(parcel):
            if time.monotonic() > deadline_s:
                self._lose(entry, "transfer", "a transfer from the device did not arrive", 1)
                entry.piece += 1
                return None
            time.sleep(LOOK_EVERY_S)
        return self._arena.on_host(parcel)

    def _write_prefill(self, job: PrefillJob, entry: _Open, tensors: dict[str, Any]) -> None:
        import torch

        tensors["token_ids"] = torch.tensor(job.tokens[job.first : job.end])
        tensors["positions"] = torch.arange(job.first, job.end)
        if not entry.told_prompt:
            # All of it, so that holes of a cached prefix still have their tokens.
            entry.told_prompt = True
            tensors["prompt_ids"] = torch.tensor(job.tokens[: job.info.prompt_tokens])
        if "boundary_states" in tensors:
            tensors["boundary_states"] = tensors["boundary_states"].transpose(0, 1).contiguous()
        self._write(job.chosen, entry, job.info, tensors, job.end - job.first)

    def _add_round(self, job: RoundJob, entry: _Open) -> None:
        if entry.rounds and (job.shape != entry.shape):
            self._flush(job.chosen, entry)
        tensors = self._fetch(entry, job.parcel)
        if tensors is None:
            return
        import torch

        tensors["round_numbers"] = torch.tensor([job.number])
        entry.info, entry.shape = job.info, job.shape
        if entry.rounds and entry.rounds[0].keys() != tensors.keys():
            self._flush(job.chosen, entry)
        entry.rounds.append(tensors)
        entry.all_rounds += 1
        most = max(1, BYTES_PER_PIECE // max(1, piece_bytes(tensors)))
        if len(entry.rounds) >= min(ROUNDS_PER_PIECE, most):
            self._flush(job.chosen, entry)

    def _flush(self, chosen: Chosen, entry: _Open, **last: Any) -> None:
        """Write the rounds collected so far as one piece."""
        if not entry.rounds or entry.info is None or entry.shape is None:
            return
        shape, rounds = entry.shape, entry.rounds
        entry.rounds = []
        tensors, texts = rounds_tensors(rounds, nodes=shape.nodes, steps=shape.steps)
        for text in texts:
            self._lose(entry, "path", text, 1)
        self._write_rounds(chosen, entry, shape, tensors, len(rounds), **last)

    def _write_rounds(
        self,
        chosen: Chosen,
        entry: _Open,
        shape: RoundShape,
        tensors: dict[str, Any],
        count: int,
        **last: Any,
    ) -> None:
        assert entry.info is not None
        roots = tensors["root_positions"]
        info = msgspec.structs.replace(
            entry.info,
            kind="rounds",
            more_chunks=False,
            first_position=int(roots[0]) if len(roots) else 0,
            steps=shape.steps,
            topk=shape.topk,
            num_draft_tokens=shape.nodes,
            draft_hidden_width=shape.draft_width if "step_hidden" in tensors else 0,
            all_boundaries=entry.info.all_boundaries if "boundary_states" in tensors else [],
            **last,
        )
        self._write(chosen, entry, info, tensors, count)

    def _write(
        self, chosen: Chosen, entry: _Open, info: PieceInfo, tensors: dict[str, Any], rows: int
    ) -> None:
        fault = boundary_fault(tensors, info.boundaries, info.hidden_width, info.all_boundaries)
        if fault is not None:
            self._lose(entry, "boundaries", fault, 1)
            self._say_once("boundaries", f"request {chosen.number}: {fault}")
        info = msgspec.structs.replace(info, piece=entry.piece, lost=entry.texts)
        entry.piece += 1
        entry.texts = []
        name = self._to_file(chosen, entry, info, tensors)
        self._session.emit(
            CapturePiece(
                rid=self._session.rid_digest(chosen.request),
                request=chosen.number,
                piece=info.piece,
                kind=info.kind,
                rows=rows,
                bytes=piece_bytes(tensors),
                file=name,
                digests={key: _digest(value) for key, value in sorted(tensors.items())},
            )
        )

    def _to_file(
        self, chosen: Chosen, entry: _Open, info: PieceInfo, tensors: dict[str, Any]
    ) -> str:
        """The name of the piece's file; empty when there is none."""
        folder = self._folder
        if folder is None:
            return ""
        if self.is_full:
            self._lose(entry, "budget", "", 1)
            return ""
        try:
            path, size = folder.write(chosen.number, info, tensors)
        except BudgetReached:
            self.is_full = True
            self._lose(entry, "budget", "", 1)
            self._say_once(
                "budget",
                f"the capture files in {folder.folder} take {folder.used_bytes / 1e6:.0f} MB, "
                "which is what they may: no more are written; serving and the trace go on. Fix: "
                f"raise {PREFIX}_CAPTURE_MB, or capture fewer requests.",
            )
            return ""
        except OSError as error:
            self._lose(entry, "write", "", 1)
            self._say_once(
                f"write {error.errno}",
                f"a capture file in {folder.folder} cannot be written ({error.strerror or error}); "
                "serving and the trace go on, each piece that is lost is counted. Fix: make room, "
                f"or name another folder with --probe-dir or {PREFIX}_DIR.",
            )
            return ""
        entry.written += 1
        entry.nbytes += size
        entry.first_file = entry.first_file or path.name
        return path.name

    def _end(self, job: EndJob, entry: _Open) -> None:
        self._open.pop(job.chosen.number, None)
        last: dict[str, Any] = {"last": True, "output_tokens": job.output_tokens}
        if entry.rounds:
            self._flush(job.chosen, entry, **last)
        elif entry.info is not None:
            shape = entry.shape or job.shape
            width = len(entry.info.boundaries) * entry.info.hidden_width
            import torch

            empty = no_rounds(shape.nodes, shape.steps, width, getattr(torch, entry.info.dtype))
            self._write_rounds(job.chosen, entry, shape, empty, 0, **last)
        info, folder = entry.info, self._folder
        self._session.emit(
            Capture(
                rid=self._session.rid_digest(job.chosen.request),
                request=job.chosen.number,
                pieces=entry.written,
                bytes=entry.nbytes,
                folder=str(folder.folder.absolute()) if folder is not None else "",
                first_file=entry.first_file,
                prompt_tokens=info.prompt_tokens if info is not None else 0,
                cached_tokens=info.cached_tokens if info is not None else 0,
                output_tokens=job.output_tokens,
                rounds=entry.all_rounds,
                all_boundaries=bool(info is not None and info.all_boundaries),
                lost=dict(entry.lost),
            )
        )
        if folder is not None and entry.written:
            self._session.say(
                "captured request %d: %d prompt tokens, %d rounds, %d files, %.1f MB from %s on%s",
                job.chosen.number,
                info.prompt_tokens if info is not None else 0,
                entry.all_rounds,
                entry.written,
                entry.nbytes / 1e6,
                entry.first_file,
                f"; lost: {dict(entry.lost)}" if entry.lost else "",
            )

    def _lose(self, entry: _Open, reason: str, text: str, count: int) -> None:
        entry.lost[reason] += count
        if text and text not in entry.texts:
            entry.texts.append(text)
        self._session.recorder.count_capture_loss(reason)
        if reason == "buffer":
            self._say_once(
                "buffer",
                "what a captured request left on the device did not fit into the capture buffer at "
                "once and was lost; its files say where. Fix: raise "
                f"{PREFIX}_CAPTURE_BUFFER_MB, or lower --chunked-prefill-size.",
            )
        elif reason == "layers":
            self._say_once(
                "layers",
                f"a request that is captured with all layers lacks some: {text}. Aux states and "
                f"everything else are captured. Fix: raise {PREFIX}_CAPTURE_BUFFER_MB, or capture "
                "shorter prompts, one at a time.",
            )

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._session.warn("capture: %s", text)


def _digest(tensor: Any) -> str:
    import torch

    # A tensor of one row counts as contiguous whatever its stride, and is then no bytes.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.copy_(tensor.reshape(-1))
    data = flat.view(torch.uint8).numpy()
    return hashlib.blake2b(data, digest_size=8).hexdigest()
