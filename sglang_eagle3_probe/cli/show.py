"""``show DIR --record TYPE``: records as JSON lines, for jq."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.trace.reader import KNOWN_TYPES, ProcessTrace, read


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "show",
        help="print records of one type as JSON lines",
        description="Prints the lines of a trace as they were written, all runs in the directory "
        "included; damaged lines are left out.",
    )
    command.add_argument("trace", type=Path, metavar="DIR", help="trace directory or file")
    command.add_argument(
        "--record",
        required=True,
        metavar="TYPE",
        choices=sorted(KNOWN_TYPES),
        help=", ".join(sorted(KNOWN_TYPES)),
    )
    command.add_argument("--rank", metavar="RANK", help="only this rank, such as tp0 or dp1")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the lines."""
    processes = read(options.trace).processes
    chosen = [p for p in processes if options.rank is None or options.rank in p.label.split()]
    if not chosen:
        labels = ", ".join(p.label for p in processes)
        raise UsageError(f"no process has the rank {options.rank!r}. Fix: use one of: {labels}")
    for process in chosen:
        for line in _lines(process, options.record):
            sys.stdout.buffer.write(line)
    return 0


class _Tag(msgspec.Struct):
    type: str = ""


_TAG = msgspec.json.Decoder(_Tag)


def _lines(process: ProcessTrace, record: str) -> Iterator[bytes]:
    for path in process.files:
        try:
            with path.open("rb") as lines:
                for line in lines:
                    if record.encode() in line and line.endswith(b"\n") and _type(line) == record:
                        yield line
        except OSError as error:
            print(f"{path} cannot be read ({error.strerror})", file=sys.stderr)


def _type(line: bytes) -> str:
    try:
        return _TAG.decode(line).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
