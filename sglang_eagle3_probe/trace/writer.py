"""The writer thread's work: encode, append, rotate, and keep the book of losses."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sglang_eagle3_probe import __version__
from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.cost_records import ProbeCost
from sglang_eagle3_probe.trace.parts import Part, Parts
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import (
    Fault,
    Footer,
    Header,
    Losses,
    Progress,
    Ranks,
    SlotStats,
)

logger = logging.getLogger("sglang_eagle3_probe")

FULL = {errno.ENOSPC, errno.EDQUOT}
TRAFFIC = (
    VerifyRound,
    RequestStart,
    RequestEnd,
    Refusals,
    PhaseTimes,
    SlotStats,
    ProbeCost,
    CapturePiece,
    Capture,
)
"""Records that come for as long as the server works."""

BULK = (*TRAFFIC, Progress, Footer)
"""What may rotate away. Everything else is wiring and stays in part 0."""

FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 1.0, 30.0
PENDING_LINES = 1024
"""Wiring lines kept in memory while the disk refuses them."""


def record_type(record: Record) -> str:
    """The record's ``type`` on its line."""
    return str(type(record).__struct_config__.tag)


class LossBook:
    """Counts of everything lost. Its lock is taken only when something *is* lost."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler may emit too
        self._losses = Losses(
            dropped_records={}, faults={}, disabled_sites=[], missed={}, captures={}
        )
        self.queue_drops = 0

    def dropped(self, kind: str, where: str, count: int = 1) -> None:
        with self._lock:
            book = self._losses.dropped_records
            book[kind] = book.get(kind, 0) + count
            if where == "queue":
                self.queue_drops += count

    def write_error(self, text: str) -> None:
        with self._lock:
            self._losses.write_errors += 1
            self._losses.last_write_error = text

    def rotated(self, files: int, records: int) -> None:
        with self._lock:
            self._losses.rotated_away_files += files
            self._losses.rotated_away_records += records

    def fault(self, fault: Fault) -> None:
        with self._lock:
            faults = self._losses.faults
            faults[fault.site] = max(faults.get(fault.site, 0) + 1, fault.count)
            if fault.disabled and fault.site not in self._losses.disabled_sites:
                self._losses.disabled_sites.append(fault.site)

    def missed(self, kind: str, count: int) -> None:
        with self._lock:
            self._losses.missed[kind] = self._losses.missed.get(kind, 0) + count

    def capture(self, reason: str) -> None:
        with self._lock:
            book = self._losses.captures
            book[reason] = book.get(reason, 0) + 1

    def note_fault(self, site: str, error: BaseException) -> None:
        """A defect of the recorder itself: it cannot write a record about its own failure."""
        with self._lock:
            self._losses.faults[site] = self._losses.faults.get(site, 0) + 1
            self._losses.last_write_error = f"{type(error).__name__}: {error}"

    def snapshot(self) -> Losses:
        with self._lock:
            return Losses(
                dropped_records=dict(self._losses.dropped_records),
                write_errors=self._losses.write_errors,
                last_write_error=self._losses.last_write_error,
                rotated_away_files=self._losses.rotated_away_files,
                rotated_away_records=self._losses.rotated_away_records,
                faults=dict(self._losses.faults),
                disabled_sites=list(self._losses.disabled_sites),
                missed=dict(self._losses.missed),
                captures=dict(self._losses.captures),
            )


class _Line:
    __slots__ = ("bulk", "data", "kind")

    def __init__(self, kind: str, bulk: bool, data: bytes) -> None:
        self.kind = kind
        self.bulk = bulk
        self.data = data


class Writer:
    """Used by one thread. Nothing here raises for trouble with files."""

    def __init__(
        self,
        directory: Path,
        role: str,
        header_factory: Callable[[], Header],
        book: LossBook,
        *,
        file_bytes: int,
        max_files: int,
    ) -> None:
        self._directory = directory
        self._role = role
        self._header_factory = header_factory
        self._book = book
        self._file_bytes = file_bytes
        self._max_files = max_files
        self._encoder = msgspec.json.Encoder(enc_hook=str)
        self._header: Header | None = None
        self._parts: Parts | None = None
        self._pending: list[_Line] = []
        self._records_written = 0
        self._bytes_written = 0
        self._retry_at = 0.0
        self._back_off_s = FIRST_BACK_OFF_S
        self._in_trouble = False
        self._warned: set[str] = set()
        self._path: Path | None = None
        self.idle = True

    @property
    def path(self) -> Path | None:
        return self._path

    # -- records in ---------------------------------------------------------------------------

    def write(self, records: Sequence[Record]) -> None:
        """Write a batch; with nothing new, retry what an earlier failure left behind."""
        lines = self._pending + [line for r in records if (line := self._encode(r)) is not None]
        self._pending = []
        if lines:
            self._write_lines(lines)
        if self._book.queue_drops:
            self._warn(
                "queue",
                "records came faster than the trace could be written and some were dropped. "
                "Serving is not affected, every drop is counted in the trace. "
                "Fix: raise SGLANG_EAGLE3_PROBE_QUEUE_RECORDS, or put the trace on a faster disk.",
            )

    def progress(self, seq: int, losses: Losses) -> None:
        """Leave word of the losses so far: a killed server writes no footer."""
        if self._parts is not None and self._parts.has_removed_file():
            self._reopen_after_removal()
        record = Progress(
            records_written=self._records_written,
            bytes_written=self._bytes_written,
            losses=losses,
        )
        self._stamp(record, seq)
        self.write([record])

    def footer(self, next_seq: Callable[[], int], reason: str) -> None:
        """End the trace in order."""
        self._retry_at = 0.0  # last chance for what is still pending
        self.write([])
        if self._parts is None:
            return
        record = Footer(
            records_written=self._records_written,
            bytes_written=self._bytes_written,
            losses=self._book.snapshot(),
            reason=reason,
        )
        self._stamp(record, next_seq())
        self.write([record])
        self._parts.close()
        self._parts = None

    def _stamp(self, record: Record, seq: int) -> None:
        record.seq = seq
        record.monotonic_s = time.monotonic()
        record.wall_s = time.time()

    def _encode(self, record: Record) -> _Line | None:
        kind = record_type(record)
        try:
            return _Line(kind, isinstance(record, BULK), self._encoder.encode(record) + b"\n")
        except Exception as error:  # whatever a tap put into a field
            self._book.dropped(kind, "encode")
            self._book.write_error(f"cannot encode {kind}: {error}")
            self._warn(
                f"encode {kind}",
                f"a {kind} record could not be encoded ({error}) and is missing from the trace; "
                "other records are written. Fix: report this line to sglang-eagle3-probe.",
            )
            return None

    # -- lines out ----------------------------------------------------------------------------

    def _write_lines(self, lines: list[_Line]) -> None:
        if time.monotonic() < self._retry_at:
            self._keep_or_drop(lines)
            return
        try:
            parts = self._parts or self._open()
        except OSError as error:
            self._trouble(error, "cannot open a trace file", lines)
            return
        start = 0
        while start < len(lines):
            part = parts.bulk if lines[start].bulk else parts.wiring
            full = part is parts.bulk and lines[start].bulk and part.size >= self._file_bytes
            # The footer has counted the losses: nothing may rotate away because of it.
            if full and lines[start].kind != "footer":
                self._rotate(parts)
                part = parts.bulk
            if part is parts.wiring and part.size >= 2 * self._file_bytes:
                # Wiring is a few hundred lines; more means that a tap runs wild.
                self._book.dropped(lines[start].kind, "wiring limit")
                start += 1
                continue
            end, room = start, self._file_bytes - part.size
            while end < len(lines) and (end == start or room > 0):
                target = parts.bulk if lines[end].bulk else parts.wiring
                if target is not part:
                    break
                room -= len(lines[end].data)
                end += 1
            result = part.append([line.data for line in lines[start:end]])
            self._records_written += result.lines
            self._bytes_written += result.bytes
            if result.error is not None:
                self._trouble(result.error, "cannot write the trace", lines[start + result.lines :])
                return
            start = end
        self._recovered()

    def _open(self) -> Parts:
        if self._header is None:
            self._header = self._make_header()
        parts = Parts(self._directory, self._role, self._header, self._max_files)
        self._parts = parts
        self._path = parts.wiring.path
        self._begin(parts.wiring)
        return parts

    def _make_header(self) -> Header:
        try:
            header = self._header_factory()
            header.pid = os.getpid()
        except Exception as error:
            self._book.note_fault("recorder.header", error)
            self._warn(
                "header",
                f"the trace header could not be filled in ({type(error).__name__}: {error}); the "
                "trace goes on without versions and ranks. "
                "Fix: report this line to sglang-eagle3-probe.",
            )
            header = Header(
                probe_version=__version__,
                sglang_version="unknown",
                versions={},
                pid=os.getpid(),
                role=self._role,
                ranks=Ranks(),
                level="unknown",
                patches=[],
                settings={},
            )
        return header

    def _begin(self, part: Part) -> None:
        header = msgspec.structs.replace(self._header_now(), part=part.number)
        self._stamp(header, -1)
        result = part.append([self._encoder.encode(header) + b"\n"])
        part.records = 0  # a header is repeated, so it is not a record that rotation loses
        self._bytes_written += result.bytes
        if result.error is not None:
            self._book.write_error(str(result.error))

    def _header_now(self) -> Header:
        assert self._header is not None
        return self._header

    def _rotate(self, parts: Parts) -> None:
        try:
            files, records = parts.rotate()
        except OSError as error:
            self._book.write_error(f"cannot rotate: {error}")
            self._warn(
                "rotate",
                f"the trace could not be continued in a new part ({error}); it goes on in "
                f"{parts.bulk.path}, which grows past its limit. "
                f"Fix: make {self._directory} writable.",
            )
            return
        self._book.rotated(files, records)
        self._begin(parts.bulk)

    def _reopen_after_removal(self) -> None:
        assert self._parts is not None
        self._book.write_error("a trace file was deleted while the server ran")
        self._warn(
            "removed",
            f"a trace file in {self._directory} was deleted while the server ran; a new one is "
            "begun and lacks the wiring records of the start. Fix: restart the server if you need "
            "them.",
        )
        self._parts.close()
        self._parts = None

    # -- trouble ------------------------------------------------------------------------------

    def _trouble(self, error: OSError, what: str, lines: list[_Line]) -> None:
        self._book.write_error(f"{what}: {error}")
        self._retry_at = time.monotonic() + self._back_off_s
        self._back_off_s = min(2 * self._back_off_s, LAST_BACK_OFF_S)
        self._in_trouble = True
        full = error.errno in FULL
        fix = (
            f"free space on the disk of {self._directory}"
            if full
            else f"make {self._directory} writable for this user, or set SGLANG_EAGLE3_PROBE_DIR"
        )
        self._warn(
            "full" if full else what,
            f"{what} in {self._directory} ({error.strerror or error}). Serving is not affected; "
            f"verify rounds are dropped and counted until it works again. Fix: {fix}.",
        )
        self._keep_or_drop(lines)

    def _keep_or_drop(self, lines: list[_Line]) -> None:
        for line in lines:
            if line.bulk or len(self._pending) >= PENDING_LINES:
                self._book.dropped(line.kind, "write")
            else:
                self._pending.append(line)

    def _recovered(self) -> None:
        if not self._in_trouble:
            return
        self._in_trouble = False
        self._back_off_s = FIRST_BACK_OFF_S
        lost = sum(self._book.snapshot().dropped_records.values())
        logger.info(
            "eagle3-probe: the trace in %s is written again; %d records lost", self._directory, lost
        )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("eagle3-probe: %s", message)
