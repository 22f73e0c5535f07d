"""Finds the trace files of a directory and which process wrote each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sglang_eagle3_probe.trace.parts import FILE_NAME


class TraceError(Exception):
    """There is no trace to read. The message says what was read, what was expected, and a fix."""


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


def by_process(files: Iterable[Path]) -> dict[str, list[Path]]:
    groups: dict[str, list[tuple[int, Path]]] = {}
    for path in files:
        name, part = process_name(path)
        groups.setdefault(name, []).append((part, path))
    return {name: [path for _, path in sorted(parts)] for name, parts in groups.items()}
