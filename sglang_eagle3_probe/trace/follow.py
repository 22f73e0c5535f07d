"""Reads a trace while it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sglang_eagle3_probe.trace.files import by_process
from sglang_eagle3_probe.trace.parts import FILE_NAME
from sglang_eagle3_probe.trace.reader import decode_line, process_name
from sglang_eagle3_probe.trace.records import AnyRecord, Header
from sglang_eagle3_probe.trace.runs import split_runs

CHUNK = 4 * 1024 * 1024
LONGEST_LINE = 2 * CHUNK
"""What goes on for longer without an end is no line of a trace, and is not kept."""


@dataclass(frozen=True)
class Event:
    """One record and the process (file name without part) that wrote it."""

    process: str
    record: AnyRecord


class Follower:
    """Keeps a place in every file of a directory. Lines that cannot be read are counted."""

    def __init__(self, path: Path, wanted: Callable[[str], bool] = lambda _process: True) -> None:
        """wanted: which processes to read, by name; asked at every poll."""
        self._path = path
        self._wanted = wanted
        self._places: dict[Path, int] = {}
        self._rests: dict[Path, bytes] = {}
        self.unread_lines = 0

    def poll(self) -> Iterator[Event]:
        """Everything written since the last call. Empty while the directory is not there yet."""
        files = self._files()
        for gone in self._places.keys() - set(files):
            del self._places[gone]
            self._rests.pop(gone, None)
        for file in files:
            yield from self._new_lines(file)

    def share_read(self) -> float:
        """Of the bytes that are there now."""
        size = 0
        for file in self._files():
            try:
                size += file.stat().st_size
            except OSError:
                continue
        return min(1.0, sum(self._places.values()) / size) if size else 1.0

    def _files(self) -> list[Path]:
        return [file for file in trace_files(self._path) if self._wanted(process_name(file)[0])]

    def _new_lines(self, file: Path) -> Iterator[Event]:
        place = self._places.get(file, 0)
        name = process_name(file)[0]
        try:
            with file.open("rb") as stream:
                stream.seek(0, 2)
                if stream.tell() < place:  # replaced by a shorter file
                    place, self._rests[file] = 0, b""
                stream.seek(place)
                while chunk := stream.read(CHUNK):
                    self._places[file] = place = place + len(chunk)
                    *lines, rest = (self._rests.get(file, b"") + chunk).split(b"\n")
                    if len(rest) > LONGEST_LINE:
                        self.unread_lines += 1
                        rest = b""
                    self._rests[file] = rest
                    for line in lines:
                        if not line:
                            continue
                        try:
                            yield Event(name, decode_line(line))
                        except (msgspec.DecodeError, UnicodeDecodeError):
                            self.unread_lines += 1
        except OSError:
            return  # rotated away between the listing and the opening


class NewestRun:
    """Which processes of a directory belong to the newest server run, by their headers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._headers: dict[str, Header] = {}
        self.processes: set[str] = set()
        """Names of its processes; empty while no header can be read."""
        self.older_runs = 0
        self.headless = 0
        """Processes whose header cannot be read, or not yet: they are left out."""

    def look(self) -> None:
        """Look again. A header once read is remembered for as long as its files are there."""
        groups = by_process(trace_files(self._path))
        headers = {
            name: self._headers.get(name) or _header(parts) for name, parts in groups.items()
        }
        self._headers = {name: header for name, header in headers.items() if header is not None}
        self.headless = len(headers) - len(self._headers)
        runs = split_runs(self._headers)
        self.processes = set(runs[-1]) if runs else set()
        self.older_runs = max(0, len(runs) - 1)

    def holds(self, process: str) -> bool:
        """Whether a process belongs to it."""
        return process in self.processes


def trace_files(path: Path) -> list[Path]:
    """Trace files by process and part; empty while there are none."""
    try:
        if path.is_file():
            return [path]
        return sorted((p for p in path.iterdir() if FILE_NAME.match(p.name)), key=process_name)
    except OSError:
        return []


def _header(parts: list[Path]) -> Header | None:
    """From the first part that has it whole; each part begins with it."""
    for part in parts:
        try:
            with part.open("rb") as stream:
                line = stream.readline(CHUNK)
            record = decode_line(line) if line.endswith(b"\n") else None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(record, Header):
            return record
    return None


def follow(
    path: Path, *, poll_s: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> Iterator[Event]:
    """Records as they come, from the beginning, until ``stop`` says so."""
    follower = Follower(path)
    while True:
        yield from follower.poll()
        if stop():
            return
        time.sleep(poll_s)
