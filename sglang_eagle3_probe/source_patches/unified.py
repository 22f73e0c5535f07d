"""Unified diffs that only add lines and hold no context. Pure functions on bytes.

Such a diff carries nothing but line numbers, so it fits exactly one content of a file: whoever
applies it must know that content by its digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_HUNK = re.compile(rb"@@ -(\d+),0 \+(\d+)(?:,(\d+))? @@\n")


class DiffError(ValueError):
    """Not a diff of this kind, or not for this content."""


@dataclass(frozen=True)
class Hunk:
    """Lines to add.

    Args:
        after: how many lines of the file without this diff stand before them.
        lines: with their line ends.
    """

    after: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True)
class FileAdditions:
    """What one diff adds to one file.

    Args:
        file: path as in the diff, without ``a/`` and ``b/``.
        hunks: ascending.
    """

    file: str
    hunks: tuple[Hunk, ...]


def parse(diff: bytes) -> tuple[FileAdditions, ...]:
    """Read a diff.

    Raises:
        DiffError: it takes lines away, holds context, or is damaged.
    """
    files: list[FileAdditions] = []
    lines = diff.splitlines(keepends=True)
    at = next((n for n, line in enumerate(lines) if line.startswith(b"--- ")), len(lines))
    while at < len(lines):
        old, new = lines[at], lines[at + 1] if at + 1 < len(lines) else b""
        file = old.removeprefix(b"--- a/").rstrip(b"\n")
        if new != b"+++ b/" + file + b"\n":
            raise DiffError(f"line {at + 1}: expected the two names of one file")
        at += 2
        hunks: list[Hunk] = []
        shift = 0
        while at < len(lines) and (head := _HUNK.fullmatch(lines[at])):
            after, first, count = int(head[1]), int(head[2]), int(head[3] or 1)
            body = lines[at + 1 : at + 1 + count]
            whole = len(body) == count and all(line.startswith(b"+") for line in body)
            if not whole or first != after + shift + 1 or (hunks and after <= hunks[-1].after):
                raise DiffError(f"line {at + 1}: a hunk that does not add {count} lines there")
            hunks.append(Hunk(after, tuple(line[1:] for line in body)))
            shift += count
            at += 1 + count
        if not hunks or (at < len(lines) and not lines[at].startswith(b"--- ")):
            raise DiffError(f"line {at + 1}: expected a hunk of added lines, without context")
        files.append(FileAdditions(file.decode(), tuple(hunks)))
    if not files:
        raise DiffError("no file is named")
    return tuple(files)


def added(additions: FileAdditions, content: bytes) -> bytes:
    """The content with the lines added.

    Raises:
        DiffError: the content is too short.
    """
    lines = content.splitlines(keepends=True)
    out: list[bytes] = []
    taken = 0
    for hunk in additions.hunks:
        if hunk.after > len(lines):
            raise DiffError(f"{additions.file} has {len(lines)} lines, expected {hunk.after}")
        out += [*lines[taken : hunk.after], *hunk.lines]
        taken = hunk.after
    return b"".join([*out, *lines[taken:]])


def removed(additions: FileAdditions, content: bytes) -> bytes:
    """The content without the lines again.

    Raises:
        DiffError: the lines are not there.
    """
    lines = content.splitlines(keepends=True)
    out: list[bytes] = []
    taken, shift = 0, 0
    for hunk in additions.hunks:
        start = hunk.after + shift
        if tuple(lines[start : start + len(hunk.lines)]) != hunk.lines:
            raise DiffError(f"{additions.file} does not hold the added lines at {start + 1}")
        out += lines[taken:start]
        taken = start + len(hunk.lines)
        shift += len(hunk.lines)
    return b"".join([*out, *lines[taken:]])


def files_of(diffs: Iterable[tuple[FileAdditions, ...]]) -> list[str]:
    """Every file that a series touches, once."""
    return list(dict.fromkeys(part.file for diff in diffs for part in diff))
