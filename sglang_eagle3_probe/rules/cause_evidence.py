"""What the rules share that speak of one cause of refusals."""

from __future__ import annotations

from sglang_eagle3_probe.analysis.anatomy import Anatomy, CauseShare
from sglang_eagle3_probe.rules.base import Seen
from sglang_eagle3_probe.rules.evidence import Evidence

LEAST_ROUNDS = 200


def often(parts: Anatomy, cause: str, much: float) -> CauseShare | None:
    """The cause, if surely more than this part of all rounds (95 % interval) was lost to it."""
    found = parts.of(cause)
    if parts.rounds < LEAST_ROUNDS or found.lost_interval.low <= much:
        return None
    return found


def at_each_draft(parts: Anatomy, cause: str, words: str, where: str) -> list[Seen]:
    """How many of the rounds that got to a draft were lost there; ``words`` go before its place."""
    return [
        Seen(
            f"{words} {position}",
            f"{share.count} of {share.reached} rounds that got there ({share.lost:.1%})",
            where,
        )
        for position, share in parts.by_position(cause)
    ]


def setting_in_force(evidence: Evidence) -> Seen:
    setting = evidence.understood.setting
    return Seen("steps, topk, draft tokens", list(setting or ()), "arguments.in_force")
