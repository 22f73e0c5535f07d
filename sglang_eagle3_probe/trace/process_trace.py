"""What one SGLang process left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.columns import RoundColumns
from sglang_eagle3_probe.trace.lines import blocks, records_in
from sglang_eagle3_probe.trace.parts import rank_words
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import AnyRecord, Footer, Header, Losses, Progress
from sglang_eagle3_probe.trace.rounds import RoundCounts

R = TypeVar("R", bound=Record)
F = TypeVar("F", bound="Fold")


@dataclass(frozen=True)
class Problem:
    """Something the files lack."""

    kind: str
    """``torn_last_line`` (normal after a kill), ``torn_line``, ``unknown_type``, ``bad_record``,
    ``no_header``, ``newer_format``, ``unreadable``, ``gap``, ``no_first_part``."""
    file: str
    count: int
    detail: str


@dataclass(frozen=True)
class Block:
    """Some hundred records of one process that follow each other, headers excepted."""

    header: Header | None
    records: list[AnyRecord]
    """Verify rounds among them, in the order written."""
    rounds: RoundColumns
    """The verify rounds of ``records``."""


class Fold(Protocol):
    """Something that is learnt from all records of a process while they pass by.

    A fold sees every block of its process in order and keeps no record. It may have been made and
    filled in another process: it and its class must pickle.
    """

    def add(self, block: Block) -> None: ...


@dataclass
class ProcessTrace:
    """One SGLang process's trace: all its parts, in order."""

    name: str
    """File name without the part."""
    files: list[Path]
    header: Header | None = None
    records: dict[type[Record], list[Record]] = field(default_factory=dict)
    """Everything but headers, verify rounds and what was to be left out, by type, in the order
    written; of progress records the last."""
    rounds: RoundCounts = field(default_factory=RoundCounts)
    folds: list[Fold] = field(default_factory=list)
    """Those asked for, filled."""
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

    def fold(self, fold_type: type[F]) -> F | None:
        """The fold of this type, if it was asked for."""
        return next((f for f in self.folds if isinstance(f, fold_type)), None)

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

    def blocks(self) -> Iterator[Block]:
        """Everything once more from the files, in little memory; damaged lines are left out."""
        for path in self.files:
            try:
                with path.open("rb") as stream:
                    for lines in blocks(stream):
                        records: list[AnyRecord] = [
                            r for r in records_in(lines) if not isinstance(r, Header)
                        ]
                        yield make_block(self.header, records)
            except OSError:
                continue  # counted when the trace was read

    def verify_rounds(self) -> Iterator[VerifyRound]:
        """The rounds one by one, read again from the files."""
        for block in self.blocks():
            for record in block.records:
                if isinstance(record, VerifyRound):
                    yield record


def make_block(header: Header | None, records: list[AnyRecord]) -> Block:
    """A block with its columns."""
    return Block(header, records, RoundColumns([r for r in records if type(r) is VerifyRound]))
