"""Ranks of refused drafts for captured rounds, from the trace beside the capture files.

They are not in the files: the device tells them in its own time, most of them after the piece that
their round is in was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from sglang_eagle3_probe.capture.layout import METADATA_KEY
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.safetensors_file import read_description
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestStart
from sglang_eagle3_probe.trace.files import process_name
from sglang_eagle3_probe.trace.request_ids import rid_digest
from sglang_eagle3_probe.trace.traffic import read_traffic

UNKNOWN = -1
_PROCESS = re.compile(r"^capture-.+-(?P<pid>\d+)-tp\d+(-dp\d+)?-\d{6,}-\d{4,}\.")
_PID = re.compile(r"-pid(?P<pid>\d+)(r\d+)?$")


@dataclass(frozen=True)
class RanksKnown:
    """Of how many refused rounds of a request the rank is known.

    Attributes:
        refused: rounds with a refused draft.
        told: of these, rounds that a ``refusals`` record tells of.
        known: of these, rounds with a rank; the others' tokens are not in the draft vocabulary, or
            the draft's logits were not seen.
        why: in words why the others are not told; empty when all are.
    """

    refused: int
    told: int
    known: int
    why: str = ""


class _Named(msgspec.Struct):
    request: str


@dataclass(frozen=True)
class _Told:
    """What one process's trace says. rounds: (rid digest, round) -> (position, rank or None)s."""

    found: bool
    rounds: Mapping[tuple[str, int], set[tuple[int, int | None]]]
    starts: Mapping[str, int]


class TraceRanks:
    """Looks ranks up; each process's trace is read once, at the first request that asks.

    Args:
        files: all capture files that will be read. The trace is searched in their folder and in the
            one above, where the server writes it.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._wanted: frozenset[str] | None = None
        self._told: dict[tuple[Path, str | None], _Told] = {}

    def of(
        self, path: Path, request: str, rounds: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, RanksKnown]:
        """Ranks of a request's rounds, int64 [R] with -1 where not known.

        Args:
            path: of one of the request's files. request: its id. rounds: as ``CapturedRequest``
                has them, of one round at least.
        """
        accepted = rounds["accepted_nodes"]
        positions = ((accepted >= 0).sum(dim=1) - 1).tolist()
        refused = [position < accepted.shape[1] - 1 for position in positions]
        ranks = torch.full((len(positions),), UNKNOWN, dtype=torch.int64)
        count = sum(refused)
        if not count:
            return ranks, RanksKnown(0, 0, 0)
        numbers = rounds.get("round_numbers")
        if numbers is None:
            return ranks, RanksKnown(count, 0, 0, "the capture does not number its rounds")
        told, rid = self._of_process(path), rid_digest(request)
        if not told.found:
            why = "the trace that they are in is not beside the capture files"
            return ranks, RanksKnown(count, 0, 0, why)
        if told.starts.get(rid, 0) > 1:
            why = "several requests had this id, so that the trace does not say whose they are"
            return ranks, RanksKnown(count, 0, 0, why)
        looked_at = 0
        for row, (number, position) in enumerate(zip(numbers.tolist(), positions, strict=True)):
            its = {rank for at, rank in told.rounds.get((rid, number), ()) if at == position}
            if not refused[row] or len(its) != 1:
                continue
            looked_at += 1
            ranks[row] = its.pop() or UNKNOWN
        why = (
            ""
            if looked_at == count
            else "the server looks at some rounds only, or ended before it told of the last"
        )
        return ranks, RanksKnown(count, looked_at, int((ranks > 0).sum()), why)

    def _of_process(self, path: Path) -> _Told:
        match = _PROCESS.match(path.name)
        key = path.parent, match["pid"] if match else None
        if key not in self._told:
            self._told[key] = _read(_trace_files(*key), self._rids())
        return self._told[key]

    def _rids(self) -> frozenset[str]:
        """Digests of all captured requests: a trace may tell of millions of others."""
        if self._wanted is None:
            self._wanted = frozenset(rid_digest(name) for name in _requests_of(self._files))
        return self._wanted


def _requests_of(files: Iterable[Path]) -> Iterable[str]:
    for path in files:
        try:
            text = read_description(path, path.name)[1].get(METADATA_KEY, "")
            yield msgspec.json.decode(text.encode(), type=_Named).request
        except (CheckpointError, msgspec.DecodeError, UnicodeEncodeError):
            continue  # whoever reads the whole file says so


def _trace_files(folder: Path, pid: str | None) -> list[Path]:
    """Of the process with this id, or of every one where the capture's name does not tell."""
    for place in (folder, folder.parent):
        found = []
        for path in sorted(place.glob("probe-*.jsonl")):
            process = _PID.search(process_name(path)[0])
            if process is not None and pid in (None, process["pid"]):
                found.append(path)
        if found:
            return found
    return []


def _read(files: list[Path], wanted: frozenset[str]) -> _Told:
    rounds: dict[tuple[str, int], set[tuple[int, int | None]]] = {}
    starts: dict[str, int] = {}
    for record in read_traffic(files, (Refusals, RequestStart)):
        if isinstance(record, RequestStart):
            if record.rid in wanted:
                starts[record.rid] = starts.get(record.rid, 0) + 1
        elif isinstance(record, Refusals):
            columns = zip(record.rids, record.rounds, record.positions, record.ranks, strict=False)
            for rid, number, position, rank in columns:
                if rid in wanted:
                    rounds.setdefault((rid, number), set()).add((position, rank))
    return _Told(bool(files), rounds, starts)
