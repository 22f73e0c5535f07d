"""Tells apart the server runs that share a directory, and the ranks that share a group."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_eagle3_probe.trace.records import Header, Ranks

RANKS = ("tp", "dp", "pp")


def is_other_run(a: Header | None, b: Header | None) -> bool:
    """Whether two processes cannot belong to one run: the same rank twice, or another size."""
    if a is None or b is None or a.role != b.role:
        return False
    x, y = a.ranks, b.ranks
    same_rank = all(getattr(x, f"{n}_rank") == getattr(y, f"{n}_rank") for n in RANKS)
    other_size = any(getattr(x, f"{n}_size") != getattr(y, f"{n}_size") for n in RANKS)
    return same_rank or other_size


def split_runs(headers: Mapping[str, Header | None]) -> list[list[str]]:
    """Process names by server run, oldest first: a directory may be used for several starts.

    A new run begins where a rank appears again, or where the size of the deployment changes.
    """
    runs: list[list[str]] = []
    for name in sorted(headers, key=lambda n: _started_s(headers[n])):
        if not runs or any(is_other_run(headers[name], headers[member]) for member in runs[-1]):
            runs.append([])
        runs[-1].append(name)
    return runs


def may_lead_group(ranks: Ranks) -> bool:
    """Whether it can be the first tensor-parallel rank of its data-parallel group, by whose rounds
    the group is counted, since all of them see the same: rank 0, or with DP attention, where all
    groups share the tensor-parallel ranks, the first of its share."""
    if not ranks.tp_rank:
        return True
    share = (ranks.tp_size or 1) // (ranks.dp_size or 1)
    return bool(ranks.dp_rank) and ranks.tp_rank == (ranks.dp_rank or 0) * share


def _started_s(header: Header | None) -> float:
    return header.wall_s if header is not None else 0.0
