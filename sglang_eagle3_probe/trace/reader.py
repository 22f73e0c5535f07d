"""Reads trace files, whole or damaged, and says what was missing. Never imports SGLang."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglang_eagle3_probe.trace.files import TraceError, by_process, find_files, process_name
from sglang_eagle3_probe.trace.lines import KNOWN_TYPES, decode_line
from sglang_eagle3_probe.trace.parallel import Job, read_all
from sglang_eagle3_probe.trace.process_trace import Block, Fold, Problem, ProcessTrace
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import FORMAT_VERSION
from sglang_eagle3_probe.trace.runs import RANKS, split_runs

__all__ = [
    "KNOWN_TYPES",
    "Block",
    "Fold",
    "Problem",
    "ProcessTrace",
    "Trace",
    "TraceError",
    "decode_line",
    "find_files",
    "process_name",
    "read",
]


@dataclass
class Trace:
    """What a directory (or one file) holds."""

    path: Path
    processes: list[ProcessTrace]

    def runs(self) -> list[Trace]:
        """Split by server run, oldest first."""
        members = {process.name: process for process in self.processes}
        runs = split_runs({name: process.header for name, process in members.items()})
        return [Trace(self.path, _in_rank_order(members[name] for name in run)) for run in runs]

    def newest_run(self) -> Trace:
        return self.runs()[-1]


def _in_rank_order(processes: Iterable[ProcessTrace]) -> list[ProcessTrace]:
    def key(process: ProcessTrace) -> tuple[str, list[int], str]:
        header = process.header
        ranks = [getattr(header.ranks, f"{n}_rank") or 0 for n in RANKS] if header else []
        return (header.role if header else "~", ranks, process.name)

    return sorted(processes, key=key)


def read(
    path: str | os.PathLike[str],
    *,
    folds: Sequence[Callable[[], Fold]] = (),
    leave_out: Collection[type[Record]] = (),
    workers: int | None = None,
) -> Trace:
    """Read a trace directory or a single trace file, in one pass.

    Args:
        folds: Makers of what is to be learnt on the way; each process's trace gets its own. They
            must pickle: classes, functions of a module, ``functools.partial`` of these.
        leave_out: Types that ``ProcessTrace.records`` shall not hold, since there may be millions
            of them; folds and the counts of losses see them all the same.
        workers: Processes that read at once; by default one per core for a large trace, none
            besides this one for a small trace.

    Raises:
        TraceError: nothing there can be read as a trace.
    """
    place = Path(path)
    groups = by_process(find_files(place))
    jobs = [Job(name, files, tuple(folds), frozenset(leave_out)) for name, files in groups.items()]
    processes = read_all(jobs, workers)
    if not any(p.header is not None or p.read for p in processes):
        reasons = "; ".join(f"{p.file}: {p.detail}" for x in processes for p in x.problems)
        raise TraceError(
            f"{place} holds {len(processes)} trace(s), and none could be read"
            f" ({reasons or 'they are empty'}). Expected: JSON lines that begin with a header "
            f"of format {FORMAT_VERSION} or older. Fix: {_fix_for(processes)}."
        )
    return Trace(place, _in_rank_order(processes))


def _fix_for(processes: list[ProcessTrace]) -> str:
    kinds = {p.kind for x in processes for p in x.problems}
    if "unreadable" in kinds:
        return "run this as the user that ran the server (trace files are readable by it alone)"
    if "newer_format" in kinds:
        return "pip install -U sglang-eagle3-probe on this machine"
    return "wait until the server has written its first records, or name another directory"
