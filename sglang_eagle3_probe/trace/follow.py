"""Reads a trace while it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sglang_eagle3_probe.trace.parts import FILE_NAME
from sglang_eagle3_probe.trace.reader import decode_line, process_name
from sglang_eagle3_probe.trace.records import AnyRecord

CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True)
class Event:
    """One record and the process (file name without part) that wrote it."""

    process: str
    record: AnyRecord


class Follower:
    """Keeps a place in every file of a directory. Lines that cannot be read are counted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[Path, int] = {}
        self._rests: dict[Path, bytes] = {}
        self.unread_lines = 0

    def poll(self) -> Iterator[Event]:
        """Everything written since the last call. Empty while the directory is not there yet."""
        for file in self._files():
            yield from self._new_lines(file)

    def _files(self) -> list[Path]:
        try:
            if self._path.is_file():
                return [self._path]
            return sorted(
                (p for p in self._path.iterdir() if FILE_NAME.match(p.name)), key=process_name
            )
        except OSError:
            return []

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
