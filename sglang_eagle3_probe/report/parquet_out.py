"""A whole trace as Parquet: one folder per record type, partitioned by rank and process.

    OUT/<record type>/rank=<tp0-dp1>/process=<file name without part>/rows.parquet

Records that are column-wise on their line have one row per entry: ``verify_round`` per request and
round, ``refusals`` per refused draft. ``processes`` and ``problems`` tell what the trace lacks.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sglang_eagle3_probe import __version__
from sglang_eagle3_probe.report import arrow_types
from sglang_eagle3_probe.trace.acceptance_records import Refusals, VerifyRound
from sglang_eagle3_probe.trace.columns import MISSING, RoundColumns
from sglang_eagle3_probe.trace.garbage import no_search_for_cycles
from sglang_eagle3_probe.trace.parts import rank_words
from sglang_eagle3_probe.trace.reader import ProcessTrace, Trace
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Header, Losses

MARKER = "_export.json"
"""Tells an export from a folder that is someone's own. Readers of Parquet skip names with ``_``."""
LAYOUT = "sglang-eagle3-probe-parquet/1"
GROUP_ROWS = 128 * 1024
"""Rows of a row group."""
CONVERT_RECORDS = 256
"""Records held as objects at most, of each type; as columns they take a tenth of the memory."""


class ExportError(Exception):
    """The export cannot be written there. The message says why, and a fix."""


@dataclass
class Written:
    """What an export holds."""

    place: Path
    rows: Counter[str] = field(default_factory=Counter)
    """By table."""
    bytes: int = 0


def export(trace: Trace, place: Path, *, replace: bool = False) -> Written:
    """Write ``place``, complete or not at all, in memory that does not grow with the trace.

    Args:
        trace: Its files are read again.
        replace: Put the export in the place of an older one.

    Raises:
        ExportError: something else is there, or it cannot be written.
    """
    _check(place, replace)
    written = Written(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place, so that it can be moved there whole; readable by the owner alone.
        partial = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            with no_search_for_cycles():
                _write_all(trace, partial, written)
            if place.exists():
                shutil.rmtree(place)
            partial.replace(place)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except (OSError, pa.ArrowException) as error:
        raise ExportError(
            f"{place} could not be written ({getattr(error, 'strerror', None) or error}); no half "
            "of an export was left. Fix: free space, or name a place that this user may write to."
        ) from error
    return written


def _write_all(trace: Trace, place: Path, written: Written) -> None:
    runs = trace.runs()
    for number, run in enumerate(runs):
        for process in run.processes:
            _Process(place, process, written).write()
            _write_facts(place, process, number, number == len(runs) - 1, written)
    marker = {"layout": LAYOUT, "probe_version": __version__, "rows": dict(written.rows)}
    (place / MARKER).write_bytes(msgspec.json.encode(marker) + b"\n")
    written.bytes = sum(f.stat().st_size for f in place.rglob("*.parquet"))


def _check(place: Path, replace: bool) -> None:
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not (place / MARKER).is_file():
        raise ExportError(
            f"{place} exists and is no export of this program, so it is left alone. "
            "Fix: name a folder that does not exist."
        )
    if not replace:
        raise ExportError(f"{place} holds an export already. Fix: add --force to replace it.")


def rank_of(process: ProcessTrace) -> str:
    """``tp0-dp1``; ``unknown`` without a header or ranks."""
    words = rank_words(process.header.ranks) if process.header is not None else []
    return "-".join(words) or "unknown"


class _Process:
    """The tables of one process's records."""

    def __init__(self, place: Path, process: ProcessTrace, written: Written) -> None:
        self._place = place
        self._process = process
        self._written = written
        self._records: dict[type[Record], list[Record]] = {}
        self._tables: dict[type[Record], list[pa.Table]] = {}
        self._rows: Counter[type[Record]] = Counter()
        """In ``_tables``, not yet written."""
        self._open: dict[type[Record], pq.ParquetWriter] = {}

    def write(self) -> None:
        # A newer format may mean anything; the reader left it alone, and says so in `problems`.
        if any(p.kind == "newer_format" for p in self._process.problems):
            return
        try:
            if self._process.header is not None:
                self._records[Header] = [self._process.header]
            for block in self._process.blocks():
                if len(block.rounds):
                    self._add(VerifyRound, _rounds(block.rounds))
                if len(block.rounds.records) != len(block.records):
                    self._add_others(block.records)
            for kind in list(self._records):
                self._convert(kind)
            for kind in self._tables:
                self._flush(kind)
        finally:
            for writer in self._open.values():
                writer.close()

    def _add_others(self, records: Sequence[Record]) -> None:
        for record in records:
            kind = type(record)
            if kind is not VerifyRound:
                self._records.setdefault(kind, []).append(record)
        for kind, waiting in self._records.items():
            if len(waiting) >= CONVERT_RECORDS:
                self._convert(kind)

    def _convert(self, kind: type[Record]) -> None:
        records, self._records[kind] = self._records[kind], []
        if records:
            rows = _refusals(records) if kind is Refusals else arrow_types.table(kind, records)
            self._add(kind, rows)

    def _add(self, kind: type[Record], rows: pa.Table) -> None:
        self._tables.setdefault(kind, []).append(rows)
        self._rows[kind] += rows.num_rows
        if self._rows[kind] >= GROUP_ROWS:
            self._flush(kind)

    def _flush(self, kind: type[Record]) -> None:
        tables, self._tables[kind] = self._tables[kind], []
        if not tables:
            return
        name = str(kind.__struct_config__.tag)
        rows = pa.concat_tables(tables)
        if kind not in self._open:
            path = _partition(self._place, name, self._process) / "rows.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[kind] = pq.ParquetWriter(path, rows.schema, compression="zstd")
        self._open[kind].write_table(rows.combine_chunks())
        self._written.rows[name] += rows.num_rows
        self._rows[kind] = 0


def _partition(place: Path, table: str, process: ProcessTrace) -> Path:
    return place / table / f"rank={rank_of(process)}" / f"process={process.name}"


def _rounds(rows: RoundColumns) -> pa.Table:
    """One row per request and round; impossible entries are left out and counted."""
    int32 = pa.int32()
    late = [len(r.not_counted) for r in rows.records]
    return pa.table(
        {
            "seq": pa.array(rows.seq, pa.int64()),
            "monotonic_s": pa.array(rows.monotonic_s, pa.float64()),
            "wall_s": pa.array(rows.wall_s, pa.float64()),
            "rid": pa.array(rows.rid, pa.string()),
            "round": _known(rows.round),
            "context_len": _known(rows.context_len),
            "correct_drafts": pa.array(rows.correct_drafts, int32),
            "steps": pa.array(rows.steps, int32),
            "topk": pa.array(rows.topk, int32),
            "proposed_drafts": pa.array(rows.proposed_drafts, int32),
            "out_of_vocab": pa.array(rows.out_of_vocab, pa.bool_()),
            "greedy": pa.array(rows.greedy, pa.bool_()),
            "looked_at": pa.array(rows.looked_at, pa.bool_()),
            "batch_size": pa.array(rows.batch_size, int32),
            "batch_not_counted": pa.array(rows.of_record(late), int32),
        }
    )


def _known(values: list[int]) -> pa.Array:
    whole = MISSING not in values
    return pa.array(values if whole else [None if v == MISSING else v for v in values], pa.int32())


def _refusals(records: Sequence[Any]) -> pa.Table:
    """One row per refused draft."""
    rows = [
        (r.seq, r.monotonic_s, r.wall_s, *entry)
        for r in records
        for entry in zip(
            r.rids,
            r.rounds,
            r.positions,
            r.ranks,
            r.target_argmax_matches,
            r.unexpanded or repeat(None),
            strict=False,
        )
    ]
    int32 = pa.int32()
    names_and_types = (
        ("seq", pa.int64()),
        ("monotonic_s", pa.float64()),
        ("wall_s", pa.float64()),
        ("rid", pa.string()),
        ("round", int32),
        ("position", int32),
        ("rank_in_draft", int32),
        ("target_argmax_matches", pa.bool_()),
        ("unexpanded", pa.bool_()),
    )
    columns: Iterator[Sequence[Any]] = iter(zip(*rows, strict=True) if rows else [()] * 9)
    return pa.table(
        {name: pa.array(next(columns), type_) for name, type_ in names_and_types},
    )


class _ProcessRow(Record, kw_only=True):
    """One process, its losses and what the reader counted."""

    run: int
    newest_run: bool
    label: str
    role: str | None
    tp_rank: int | None
    dp_rank: int | None
    pp_rank: int | None
    files: list[str]
    ended_in_order: bool
    records_read: int
    sequence_numbers_missing: int
    request_rounds: int
    rounds_not_counted: int
    rounds_impossible: int
    losses: Losses


class _ProblemRow(Record, kw_only=True):
    """One problem the reader found."""

    kind: str
    file: str
    count: int
    detail: str


def _write_facts(
    place: Path, process: ProcessTrace, run: int, newest: bool, written: Written
) -> None:
    header: Header | None = process.header
    ranks = header.ranks if header is not None else None
    row = _ProcessRow(
        run=run,
        newest_run=newest,
        label=process.label,
        role=header.role if header is not None else None,
        tp_rank=ranks.tp_rank if ranks else None,
        dp_rank=ranks.dp_rank if ranks else None,
        pp_rank=ranks.pp_rank if ranks else None,
        files=[path.name for path in process.files],
        ended_in_order=process.ended_in_order,
        records_read=process.read,
        sequence_numbers_missing=process.missing,
        request_rounds=process.rounds.total,
        rounds_not_counted=process.rounds.not_counted,
        rounds_impossible=process.rounds.impossible,
        losses=process.losses,
    )
    problems = [
        _ProblemRow(kind=p.kind, file=p.file, count=p.count, detail=p.detail)
        for p in process.problems
    ]
    # Empty `problems` are written too: a query for damage must find a table.
    for name, kind, rows in (
        ("processes", _ProcessRow, [row]),
        ("problems", _ProblemRow, problems),
    ):
        path = _partition(place, name, process) / "rows.parquet"
        path.parent.mkdir(parents=True)
        table = arrow_types.table(kind, rows).drop_columns(["seq", "monotonic_s", "wall_s"])
        pq.write_table(table, path, compression="zstd")
        written.rows[name] += table.num_rows
