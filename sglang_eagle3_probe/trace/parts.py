"""The files behind one process's trace: naming, opening, whole-line appends, rotation.

Part 0 keeps the wiring records for as long as the process lives; verify rounds and progress go to
the newest part. So rotation can delete any part but the first and never lose what explains the
wiring. Used by the recorder's writer thread only; nothing here is thread-safe.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sglang_eagle3_probe.trace.records import Header, Ranks

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

FILE_NAME = re.compile(r"^(?P<stem>probe-.+-pid\d+(?:r\d+)?)-part(?P<part>\d+)\.jsonl$")
"""``probe-<role>[-tp0][-dp0][-pp0]-pid<pid>[r<run>]-part<n>.jsonl``"""


def rank_words(ranks: Ranks) -> list[str]:
    """``["tp0", "dp1"]``: tp always, dp and pp only where there are several; none if unknown."""
    known = (
        ("tp", ranks.tp_rank, None),
        ("dp", ranks.dp_rank, ranks.dp_size),
        ("pp", ranks.pp_rank, ranks.pp_size),
    )
    return [f"{name}{rank}" for name, rank, size in known if rank is not None and size != 1]


def stem(role: str, ranks: Ranks, pid: int) -> str:
    """File name without the part."""
    return "-".join(["probe", role, *rank_words(ranks), f"pid{pid}"])


def make_directory(path: Path) -> None:
    """Make ``path`` and its missing parents, readable by the owner alone."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


@dataclass(frozen=True)
class Appended:
    """Outcome of one append: how many leading lines are whole in the file, and what went wrong."""

    lines: int
    bytes: int
    error: OSError | None


class Part:
    """One open trace file."""

    def __init__(self, path: Path, number: int) -> None:
        """Create the file. ``FileExistsError`` if it is there: an older run is never touched."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(path, flags, FILE_MODE)
        self.path = path
        self.number = number
        self.size = 0
        self.records = 0
        self._torn = False

    def append(self, lines: Sequence[bytes]) -> Appended:
        """Write whole lines (each ends with a newline). Never raises ``OSError``.

        When the last write stopped inside a line, the next one begins on a new line, so that a
        full disk costs the torn line and nothing after it.
        """
        lead = b"\n" if self._torn else b""
        data = memoryview(lead + b"".join(lines))
        done = 0
        error: OSError | None = None
        while done < len(data):
            try:
                written = os.write(self._fd, data[done:])
            except OSError as caught:
                error = caught
                break
            if written <= 0:
                error = OSError("the system wrote nothing and gave no reason")
                break
            done += written
        if done:
            self._torn = data[done - 1] != ord("\n")
        self.size += done
        whole, end = 0, len(lead)
        for line in lines:
            end += len(line)
            if end > done:
                break
            whole += 1
        self.records += whole
        return Appended(whole, done, error)

    def is_removed(self) -> bool:
        """Someone deleted the file; what we write goes nowhere."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):  # nothing is buffered here, so nothing can be lost
            os.close(self._fd)


class Parts:
    """The open parts of one process: ``wiring`` (part 0) and ``bulk`` (the newest)."""

    def __init__(self, directory: Path, role: str, header: Header, max_files: int) -> None:
        """Open part 0. Raises ``OSError`` when the directory or the file cannot be made."""
        make_directory(directory)
        self._directory = directory
        self._kept = max(2, max_files)
        """Part 0 and one part that moves; with a single file there would be no room to rotate."""
        base = stem(role, header.ranks, header.pid)
        self._stem, first = self._open_first(base)
        self.wiring = first
        self.bulk = first
        self._older: list[tuple[Path, int]] = []
        """Closed parts, oldest first, with their number of records; part 0 is never among them."""

    def _open_first(self, base: str) -> tuple[str, Part]:
        # Process ids repeat, above all in containers; an earlier run's file must survive.
        run = 1
        while True:
            name = base if run == 1 else f"{base}r{run}"
            try:
                return name, Part(self._directory / f"{name}-part0.jsonl", 0)
            except FileExistsError:
                run += 1

    def rotate(self) -> tuple[int, int]:
        """Continue verify rounds in a new part; delete the oldest beyond the limit.

        Returns:
            (files deleted, records that were in them). Raises ``OSError`` if no part can be opened;
            then the current part stays in use.
        """
        number = self.bulk.number + 1
        fresh = Part(self._directory / f"{self._stem}-part{number}.jsonl", number)
        if self.bulk is not self.wiring:
            self._older.append((self.bulk.path, self.bulk.records))
            self.bulk.close()
        self.bulk = fresh
        files = records = 0
        while len(self._older) + 2 > self._kept:
            path, held = self._older.pop(0)
            path.unlink(missing_ok=True)
            files += 1
            records += held
        return files, records

    def has_removed_file(self) -> bool:
        return self.wiring.is_removed() or self.bulk.is_removed()

    def close(self) -> None:
        if self.bulk is not self.wiring:
            self.bulk.close()
        self.wiring.close()
