"""The records that come for as long as the server works, streamed from the files of one process.

A log of millions of rounds does not fit in memory as records; whoever counts reads them from here,
in the order they were written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, get_args

import msgspec

from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)

Traffic: TypeAlias = VerifyRound | RequestStart | RequestEnd | Refusals | PhaseTimes

TRAFFIC_TYPES: tuple[type[Traffic], ...] = get_args(Traffic)

_DECODER = msgspec.json.Decoder(Traffic)


def read_traffic(
    files: Iterable[Path], types: Collection[type[Traffic]] = TRAFFIC_TYPES
) -> Iterator[Traffic]:
    """Traffic records of one process's files, of some types only, oldest first.

    Lines and files that cannot be read are passed over: reading the trace has counted them already.
    """
    # The tag comes first on every line; lines of other types need no more than this.
    starts = tuple(f'{{"type":"{t.__struct_config__.tag}"'.encode() for t in types)
    for path in files:
        try:
            with path.open("rb") as lines:
                for line in lines:
                    if line.startswith(starts):
                        try:
                            yield _DECODER.decode(line)
                        except (msgspec.DecodeError, UnicodeDecodeError):
                            continue
        except OSError:
            continue
