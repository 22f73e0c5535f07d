"""Which rank this process is, from whatever the release offers."""

from __future__ import annotations

import sys
from typing import Any

from ..trace.records import Ranks

_SIZES = ("tp_size", "dp_size", "pp_size")


def current_ranks(start: dict[str, Any]) -> Ranks:
    """Ranks and sizes of this scheduler process.

    Args:
        start: arguments of ``Scheduler.__init__`` by name; up to 0.5.20 they hold the ranks.
            Later, ``runtime_context.get_parallel()`` does, set before the scheduler is made.
    """
    server_args = start.get("server_args")
    values: dict[str, int | None] = {}
    for name in ("tp_rank", "dp_rank", "pp_rank"):
        values[name] = _whole(start.get(name))
    for name in _SIZES:
        values[name] = _whole(getattr(server_args, name, None))
    parallel = _parallel()
    for name in values:
        if values[name] is None and parallel is not None:
            values[name] = _whole(_read(parallel, name))
    return Ranks(**values)


def leads_group(ranks: Ranks, server_args: Any) -> bool:
    """Whether this is the first tensor-parallel rank of those that serve the same requests."""
    rank = ranks.tp_rank or 0
    if getattr(server_args, "enable_dp_attention", False):
        # Attention of each data-parallel group is spread over this many ranks.
        return rank % max(1, (ranks.tp_size or 1) // (ranks.dp_size or 1)) == 0
    return rank == 0


def _parallel() -> Any:
    module = sys.modules.get("sglang.srt.runtime_context")
    get_parallel = getattr(module, "get_parallel", None)
    try:
        return get_parallel() if get_parallel is not None else None
    except Exception:
        return None


def _read(source: Any, name: str) -> Any:
    # The context raises on names that were not published, and not always AttributeError.
    try:
        return getattr(source, name, None)
    except Exception:
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
