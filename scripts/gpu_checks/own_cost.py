"""What the probe took, by its own clocks (``probe_cost`` records)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from sglang_eagle3_probe.analysis.probe_cost import probe_cost
from sglang_eagle3_probe.trace.cost_records import ProbeCost


def own_cost(records: Sequence[ProbeCost]) -> dict[str, Any]:
    """Facts for a line of the output; ``None`` where the records do not tell."""
    found = probe_cost(records)
    seams: dict[str, list[float]] = {}
    for record in records:
        for seam in record.seams:
            seams.setdefault(seam.seam, []).append(seam.total_us / seam.calls)
    return {
        "host_us_per_round": round(found.round_us, 1) if found is not None else None,
        "own_threads_share_of_a_core": (
            round(found.threads_share, 5) if found is not None else None
        ),
        "host_us_per_call": {name: round(median(values), 2) for name, values in seams.items()},
    }
