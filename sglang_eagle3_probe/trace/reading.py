"""Reads the files of one process: records, counts, and an account of all that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.files import process_name
from sglang_eagle3_probe.trace.lines import KNOWN_TYPES, blocks, decode_line, decode_whole
from sglang_eagle3_probe.trace.process_trace import Fold, Problem, ProcessTrace, make_block
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import FORMAT_VERSION, AnyRecord, Header, Progress


class _Tag(msgspec.Struct):
    type: str = ""
    seq: int = -1


_TAG = msgspec.json.Decoder(_Tag)


def read_process(
    name: str,
    files: list[Path],
    folds: Sequence[Callable[[], Fold]] = (),
    leave_out: Collection[type[Record]] = (),
) -> ProcessTrace:
    """One process's trace. Nothing in the files makes it raise."""
    trace = ProcessTrace(name, files, folds=[make() for make in folds])
    reading = _Reading(trace, frozenset(leave_out))
    for path in files:
        try:
            with path.open("rb") as stream:
                newer = reading.part(stream, path)
        except OSError as error:
            trace.problems.append(Problem("unreadable", path.name, 1, error.strerror or str(error)))
            continue
        if newer:
            break
    reading.note_problems()
    return trace


class _Reading:
    """State while one process's files are read."""

    def __init__(self, trace: ProcessTrace, leave_out: frozenset[type[Record]]) -> None:
        self.trace = trace
        self.leave_out = leave_out
        self.highest = -1
        self.seen = 0
        self.unknown: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.torn: Counter[str] = Counter()

    def part(self, stream: BinaryIO, path: Path) -> bool:
        """Read one file. True if its format is newer than this reader, which leaves it alone."""
        for lines in blocks(stream):
            records = decode_whole(lines) if lines.endswith(b"\n") else None
            if records is None:
                records = self._line_by_line(lines, path)
            if self._take(records, path):
                return True
        return False

    def _line_by_line(self, lines: bytes, path: Path) -> list[AnyRecord]:
        records = []
        for line in lines.split(b"\n")[:-1]:
            if not line:
                continue
            try:
                record = decode_line(line)
            except msgspec.ValidationError as error:
                self._unfit(line, error)
                continue
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.torn[path.name] += 1
                continue
            records.append(record)
            if isinstance(record, Header) and record.format_version > FORMAT_VERSION:
                return records  # what follows is not for this reader to judge
        rest = len(lines) - lines.rfind(b"\n") - 1
        if rest:
            self.trace.problems.append(
                Problem("torn_last_line", path.name, 1, f"the last {rest} bytes are cut off")
            )
        return records

    def _take(self, records: list[AnyRecord], path: Path) -> bool:
        headers = [place for place, r in enumerate(records) if type(r) is Header]
        if headers:
            records, newer = self._without_headers(records, path)
        else:
            newer = False
        self._sequence([r.seq for r in records])
        trace = self.trace
        trace.read += len(records)
        block = make_block(trace.header, records)
        trace.rounds.add_columns(block.rounds)
        if len(block.rounds.records) != len(records):
            self._keep(records)
        for fold in trace.folds:
            fold.add(block)
        return newer

    def _without_headers(
        self, records: list[AnyRecord], path: Path
    ) -> tuple[list[AnyRecord], bool]:
        """Records up to the first header of a newer format, and whether there is one."""
        trace = self.trace
        others: list[AnyRecord] = []
        for record in records:
            if not isinstance(record, Header):
                others.append(record)
                continue
            if trace.header is None or record.part < trace.header.part:
                trace.header = record
            if trace.header.format_version > FORMAT_VERSION:
                version, probe = trace.header.format_version, trace.header.probe_version
                trace.header = None
                detail = (
                    f"format {version} of probe {probe}; this reader knows formats up to "
                    f"{FORMAT_VERSION}"
                )
                trace.problems.append(Problem("newer_format", path.name, 1, detail))
                return others, True
        return others, False

    def _keep(self, records: list[AnyRecord]) -> None:
        kept = self.trace.records
        for record in records:
            kind = type(record)
            if kind is VerifyRound or kind in self.leave_out:
                continue
            if kind is Progress:
                kept[kind] = [record]  # each replaces the one before
            else:
                kept.setdefault(kind, []).append(record)

    def _sequence(self, numbers: list[int]) -> None:
        if not numbers:
            return
        self.highest = max(self.highest, max(numbers))
        self.seen += len(numbers) if min(numbers) >= 0 else sum([number >= 0 for number in numbers])

    def _unfit(self, line: bytes, error: msgspec.ValidationError) -> None:
        try:
            tag = _TAG.decode(line)
        except msgspec.DecodeError:
            self.bad[f"not a record: {error}"] += 1
            return
        self._sequence([tag.seq])
        if tag.type in KNOWN_TYPES:
            self.bad[f"{tag.type}: {error}"] += 1
        else:
            self.unknown[tag.type or "(no type)"] += 1

    def note_problems(self) -> None:
        """What can be said once everything was read."""
        trace, first = self.trace, self.trace.files[0].name
        problems = trace.problems
        for file, count in self.torn.items():
            problems.append(Problem("torn_line", file, count, "lines that are not whole JSON"))
        for kind, count in self.unknown.items():
            detail = f"records of type {kind!r}, which is not known"
            problems.append(Problem("unknown_type", first, count, detail))
        for text, count in self.bad.items():
            problems.append(Problem("bad_record", first, count, text))
        known = {p.kind for p in problems}
        if trace.header is None and not known & {"unreadable", "newer_format"}:
            problems.append(Problem("no_header", first, 1, "no line says versions and ranks"))
        if process_name(trace.files[0])[1] != 0:
            detail = "part 0, which holds the wiring, is not there"
            problems.append(Problem("no_first_part", first, 1, detail))
        trace.missing = max(0, self.highest + 1 - self.seen)
        losses = trace.losses
        told = sum(losses.dropped_records.values()) + losses.rotated_away_records
        if trace.missing > told:
            detail = "sequence numbers are missing that the trace itself does not count as lost"
            problems.append(Problem("gap", first, trace.missing - told, detail))
