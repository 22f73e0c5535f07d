"""Reads trace files, whole or damaged, and says what was missing. Never imports SGLang."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, get_args

import msgspec

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.parts import FILE_NAME, rank_words
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import (
    FORMAT_VERSION,
    AnyRecord,
    Footer,
    Header,
    Losses,
    Progress,
)
from sglang_eagle3_probe.trace.rounds import RoundCounts

R = TypeVar("R", bound=Record)

RANKS = ("tp", "dp", "pp")


class TraceError(Exception):
    """There is no trace to read. The message says what was read, what was expected, and a fix."""


@dataclass(frozen=True)
class Problem:
    """Something the files lack."""

    kind: str
    """``torn_last_line`` (normal after a kill), ``torn_line``, ``unknown_type``, ``bad_record``,
    ``no_header``, ``newer_format``, ``unreadable``, ``gap``, ``no_first_part``."""
    file: str
    count: int
    detail: str


@dataclass
class ProcessTrace:
    """One SGLang process's trace: all its parts, in order."""

    name: str
    """File name without the part."""
    files: list[Path]
    header: Header | None = None
    records: dict[type[Record], list[Record]] = field(default_factory=dict)
    """Everything but headers and verify rounds, by type, in the order written."""
    rounds: RoundCounts = field(default_factory=RoundCounts)
    problems: list[Problem] = field(default_factory=list)
    read: int = 0
    """Records read, headers excepted."""
    missing: int = 0
    """Sequence numbers that no file holds."""

    def of(self, record_type: type[R]) -> list[R]:
        """All records of one type, oldest first."""
        return self.records.get(record_type, [])  # type: ignore[return-value]

    def newest(self, record_type: type[R]) -> R | None:
        found = self.of(record_type)
        return found[-1] if found else None

    @property
    def losses(self) -> Losses:
        """The process's own count of losses: the footer's, or the last progress record's."""
        last: Footer | Progress | None = self.newest(Footer) or self.newest(Progress)
        return last.losses if last is not None else Losses()

    @property
    def ended_in_order(self) -> bool:
        """There is a footer. Without one the process was killed, or it still runs."""
        return self.newest(Footer) is not None

    @property
    def label(self) -> str:
        """``scheduler tp0 dp1``: role and ranks."""
        if self.header is None:
            return self.name
        return " ".join([self.header.role, *rank_words(self.header.ranks)])

    def verify_rounds(self) -> Iterator[VerifyRound]:
        """The rounds one by one, read again from the files."""
        for path in self.files:
            try:
                with path.open("rb") as lines:
                    for line in lines:
                        # The tag comes first on every line; most lines need no more than this.
                        if line.startswith(b'{"type":"verify_round"'):
                            try:
                                yield _ROUND.decode(line)
                            except msgspec.DecodeError:
                                continue
            except OSError:
                continue  # counted when the trace was read


@dataclass
class Trace:
    """What a directory (or one file) holds."""

    path: Path
    processes: list[ProcessTrace]

    def runs(self) -> list[Trace]:
        """Split by server run, oldest first: a directory may be used for several starts.

        A new run begins where a rank appears again, or where the size of the deployment changes.
        """
        runs: list[list[ProcessTrace]] = []
        for process in sorted(self.processes, key=lambda p: p.header.wall_s if p.header else 0.0):
            if not runs or any(_is_other_run(process, member) for member in runs[-1]):
                runs.append([])
            runs[-1].append(process)
        return [Trace(self.path, _in_rank_order(members)) for members in runs]

    def newest_run(self) -> Trace:
        return self.runs()[-1]


def _in_rank_order(processes: Iterable[ProcessTrace]) -> list[ProcessTrace]:
    def key(process: ProcessTrace) -> tuple[str, list[int], str]:
        header = process.header
        ranks = [getattr(header.ranks, f"{n}_rank") or 0 for n in RANKS] if header else []
        return (header.role if header else "~", ranks, process.name)

    return sorted(processes, key=key)


def _is_other_run(a: ProcessTrace, b: ProcessTrace) -> bool:
    if a.header is None or b.header is None or a.header.role != b.header.role:
        return False
    x, y = a.header.ranks, b.header.ranks
    same_rank = all(getattr(x, f"{n}_rank") == getattr(y, f"{n}_rank") for n in RANKS)
    other_size = any(getattr(x, f"{n}_size") != getattr(y, f"{n}_size") for n in RANKS)
    return same_rank or other_size


class _Tag(msgspec.Struct):
    type: str = ""
    seq: int = -1


_ANY = msgspec.json.Decoder(AnyRecord)
_ROUND = msgspec.json.Decoder(VerifyRound)
_TAG = msgspec.json.Decoder(_Tag)
KNOWN_TYPES = frozenset(str(m.__struct_config__.tag) for m in get_args(AnyRecord))


def decode_line(line: bytes) -> AnyRecord:
    """One line as a record. ``msgspec.DecodeError`` if it is torn, of an unknown type, or bad."""
    return _ANY.decode(line)


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a trace directory or a single trace file.

    Raises:
        TraceError: nothing there can be read as a trace.
    """
    place = Path(path)
    groups = _group(find_files(place))
    processes = [_read_process(name, files) for name, files in groups.items()]
    if not any(p.header is not None or p.read for p in processes):
        reasons = "; ".join(f"{p.file}: {p.detail}" for x in processes for p in x.problems)
        raise TraceError(
            f"{place} holds {len(processes)} trace(s), and none could be read"
            f" ({reasons or 'they are empty'}). Expected: JSON lines that begin with a header "
            f"of format {FORMAT_VERSION} or older. Fix: {_fix_for(processes)}."
        )
    return Trace(place, _in_rank_order(processes))


def _fix_for(processes: list[ProcessTrace]) -> str:
    kinds = {p.kind for x in processes for p in x.problems}
    if "unreadable" in kinds:
        return "run this as the user that ran the server (trace files are readable by it alone)"
    if "newer_format" in kinds:
        return "pip install -U sglang-eagle3-probe on this machine"
    return "wait until the server has written its first records, or name another directory"


def find_files(place: Path) -> list[Path]:
    """The trace files in a directory, or the single file named.

    Raises:
        TraceError: the place is missing, cannot be listed, or holds no trace file.
    """
    expected = (
        "a directory of probe-*.jsonl files, which a server started with --enable-probe writes "
        "(probe-logs/ where it was started, unless SGLANG_EAGLE3_PROBE_DIR says otherwise)"
    )
    try:
        if place.is_file():
            return [place]
        if not place.exists():
            raise TraceError(
                f"{place} does not exist. Expected: {expected}. "
                "Fix: correct the path, or start the server with --enable-probe first."
            )
        names = sorted(p for p in place.iterdir() if FILE_NAME.match(p.name))
    except OSError as error:
        raise TraceError(
            f"{place} cannot be read ({error.strerror or error}). Expected: {expected}. "
            "Fix: run this as the user that ran the server."
        ) from None
    if not names:
        below = sorted({str(p.parent) for p in place.glob("*/probe-*-part*.jsonl")})
        others = sum(1 for _ in place.iterdir())
        fix = f"name {below[0]}" if below else "start the server with --enable-probe"
        raise TraceError(
            f"{place} holds no trace file ({others} other entries). Expected: {expected}. "
            f"Fix: {fix}."
        )
    return names


def process_name(path: Path) -> tuple[str, int]:
    """(file name without part, part number)."""
    match = FILE_NAME.match(path.name)
    return (match["stem"], int(match["part"])) if match else (path.stem, 0)


def _group(files: Iterable[Path]) -> dict[str, list[Path]]:
    groups: dict[str, list[tuple[int, Path]]] = {}
    for path in files:
        name, part = process_name(path)
        groups.setdefault(name, []).append((part, path))
    return {name: [path for _, path in sorted(parts)] for name, parts in groups.items()}


class _Reading:
    """State while one process's files are read."""

    def __init__(self, trace: ProcessTrace) -> None:
        self.trace = trace
        self.highest = -1
        self.seen = 0
        self.unknown: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.torn: Counter[str] = Counter()

    def sequence(self, seq: int) -> None:
        if seq >= 0:
            self.seen += 1
            self.highest = max(self.highest, seq)

    def line(self, line: bytes, file: str) -> None:
        try:
            record = _ANY.decode(line)
        except msgspec.ValidationError as error:
            self._unfit(line, error)
            return
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.torn[file] += 1
            return
        trace = self.trace
        if isinstance(record, Header):
            if trace.header is None or record.part < trace.header.part:
                trace.header = record
            return
        self.sequence(record.seq)
        trace.read += 1
        if isinstance(record, VerifyRound):
            trace.rounds.add(record)
        elif isinstance(record, Progress):
            trace.records[Progress] = [record]  # each replaces the one before
        else:
            trace.records.setdefault(type(record), []).append(record)

    def _unfit(self, line: bytes, error: msgspec.ValidationError) -> None:
        try:
            tag = _TAG.decode(line)
        except msgspec.DecodeError:
            self.bad[f"not a record: {error}"] += 1
            return
        self.sequence(tag.seq)
        if tag.type in KNOWN_TYPES:
            self.bad[f"{tag.type}: {error}"] += 1
        else:
            self.unknown[tag.type or "(no type)"] += 1


def _read_process(name: str, files: list[Path]) -> ProcessTrace:
    trace = ProcessTrace(name, files)
    reading = _Reading(trace)
    for path in files:
        try:
            with path.open("rb") as lines:
                newer = _read_part(lines, path, reading)
        except OSError as error:
            trace.problems.append(Problem("unreadable", path.name, 1, error.strerror or str(error)))
            continue
        if newer:
            break
    _note_problems(reading)
    return trace


def _read_part(lines: Iterable[bytes], path: Path, reading: _Reading) -> bool:
    """Read one file. True if its format is newer than this reader, which then leaves it alone."""
    for line in lines:
        if not line.endswith(b"\n"):
            reading.trace.problems.append(
                Problem("torn_last_line", path.name, 1, f"the last {len(line)} bytes are cut off")
            )
        elif line != b"\n":
            reading.line(line, path.name)
            header = reading.trace.header
            if header is not None and header.format_version > FORMAT_VERSION:
                reading.trace.header = None
                reading.trace.problems.append(
                    Problem(
                        "newer_format",
                        path.name,
                        1,
                        f"format {header.format_version} of probe {header.probe_version}; this "
                        f"reader knows formats up to {FORMAT_VERSION}",
                    )
                )
                return True
    return False


def _note_problems(reading: _Reading) -> None:
    trace, first = reading.trace, reading.trace.files[0].name
    problems = trace.problems
    for file, count in reading.torn.items():
        problems.append(Problem("torn_line", file, count, "lines that are not whole JSON"))
    for kind, count in reading.unknown.items():
        problems.append(
            Problem("unknown_type", first, count, f"records of type {kind!r}, which is not known")
        )
    for text, count in reading.bad.items():
        problems.append(Problem("bad_record", first, count, text))
    known = {p.kind for p in problems}
    if trace.header is None and not known & {"unreadable", "newer_format"}:
        problems.append(Problem("no_header", first, 1, "no line says versions and ranks"))
    if process_name(trace.files[0])[1] != 0:
        problems.append(
            Problem("no_first_part", first, 1, "part 0, which holds the wiring, is not there")
        )
    trace.missing = max(0, reading.highest + 1 - reading.seen)
    losses = trace.losses
    told = sum(losses.dropped_records.values()) + losses.rotated_away_records
    if trace.missing > told:
        problems.append(
            Problem(
                "gap",
                first,
                trace.missing - told,
                "sequence numbers are missing that the trace itself does not count as lost",
            )
        )
