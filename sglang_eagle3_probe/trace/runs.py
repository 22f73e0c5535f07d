"""Tells apart the server runs that share a directory."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_eagle3_probe.trace.records import Header

RANKS = ("tp", "dp", "pp")


def is_other_run(a: Header | None, b: Header | None) -> bool:
    """Whether two processes cannot belong to one run: the same rank twice, or another size."""
    if a is None or b is None or a.role != b.role:
        return False
    x, y = a.ranks, b.ranks
    same_rank = all(getattr(x, f"{n}_rank") == getattr(y, f"{n}_rank") for n in RANKS)
    other_size = any(getattr(x, f"{n}_size") != getattr(y, f"{n}_size") for n in RANKS)
    return same_rank or other_size


def newest_run(headers: Mapping[str, Header]) -> tuple[set[str], int]:
    """(processes of the newest run, how many older runs there are), by process name."""
    run: set[str] = set()
    older = 0
    for name in sorted(headers, key=lambda n: headers[n].wall_s):
        if any(is_other_run(headers[name], headers[member]) for member in run):
            run, older = set(), older + 1
        run.add(name)
    return run, older
