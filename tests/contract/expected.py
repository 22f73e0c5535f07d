"""What the contract demands of the seam table as a whole."""

from __future__ import annotations

from sglang_eagle3_probe.host.seams import MAIN_SEAMS, SCHEDULER_SEAMS, Seam
from sglang_eagle3_probe.host.versions import Releases

ALL_SEAMS: tuple[Seam, ...] = (*MAIN_SEAMS, *SCHEDULER_SEAMS)

NEEDED: tuple[str, ...] = (
    "command_line",
    "scheduler_start",
    "target_loaded",
    "layer_ids",
    "embedding_copy",
    "layer_ids_delegation",
    "target_logits",
    "target_extend_v1",
    "draft_extend_v1",
    "target_extend_v2",
    "draft_forward",
    "draft_weights",
    "draft_built",
    "verify_result",
    "verify_result_v1",
    "verify_round",
    "draft_round",
    "draft_steps",
    "draft_extend_round",
    "worker_forward",
    "target_forward",
    "draft_extend_graph",
    "draft_select",
    "request_output",
)
"""Seams that handlers are bound to; each must have a row in every release of its range."""

PARTIAL: dict[str, Releases] = {
    "target_loaded": Releases("0.5.9", "0.5.10.post1"),
    "embedding_copy": Releases("0.5.9", "0.5.21"),
    "layer_ids_delegation": Releases("0.5.10"),
    "target_extend_v1": Releases("0.5.9", "0.5.12.post1"),
    "draft_extend_v1": Releases("0.5.9", "0.5.12.post1"),
    "verify_result_v1": Releases("0.5.9", "0.5.12.post1"),
}
"""Seams that rightly do not exist in every release."""

SEVERAL_TARGETS: frozenset[str] = frozenset(
    {
        "layer_ids",
        "embedding_copy",
        "draft_forward",
        "draft_weights",
        "draft_built",
        "verify_round",
        "draft_round",
        "draft_steps",
        "draft_extend_round",
    }
)
"""Seams with a target per model or worker class; every other one has a single target a release."""

DELIBERATE: dict[str, str] = {
    "target_loaded": "later the configured ids arrive before graphs are captured",
    "embedding_copy": "later the class captures boundary 0 by itself",
}
"""Seams whose range is narrower than the code would allow, and why."""


def expected_releases(name: str) -> Releases:
    """Where a seam of this name must have a row."""
    return PARTIAL.get(name, Releases())


def row_id(seam: Seam) -> str:
    """How a row is named in test ids: short, and unique within a release."""
    return f"{seam.name}-{seam.module.rpartition('.')[2]}.{seam.attribute}"
