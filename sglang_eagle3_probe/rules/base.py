"""What a rule is and what it may say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:  # the server runs static rules, and has no use for the reader of traces
    from sglang_eagle3_probe.rules.evidence import Evidence, RankEvidence

Severity = Literal["error", "warning", "note"]
Source = Literal["trace", "files"]
"""Seen on the running server, or read off configs and checkpoint headers."""
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first. Notes do not change the exit code."""


@dataclass(frozen=True)
class Seen:
    """One piece of evidence: what was looked at, what it was, and which record says so."""

    what: str
    value: Any
    where: str


@dataclass(frozen=True)
class Finding:
    """Something is wrong, doubtful, or worth knowing."""

    code: str
    severity: Severity
    title: str
    message: str
    """One sentence."""
    evidence: tuple[Seen, ...]
    fix: str
    ranks: tuple[str, ...] = ()
    """Processes it was seen in; empty when it concerns the deployment as a whole."""
    source: Source = "trace"
    also: tuple[str, ...] = ()
    """Codes of static rules that found the same cause in the files."""


@dataclass(frozen=True)
class Unknown:
    """The rule could not decide, and this is what would decide it."""

    code: str
    title: str
    message: str
    decide: str
    ranks: tuple[str, ...] = ()
    source: Source = "trace"
    also: tuple[str, ...] = ()


Result: TypeAlias = Finding | Unknown


@dataclass(frozen=True)
class Page:
    """The rule's documentation; docs/rules/<code>.md and ``explain`` are made of it."""

    checks: str
    why: str
    evidence: str
    fix: str
    ignore: str


@dataclass(frozen=True)
class Rule:
    """One check with a stable code."""

    code: str
    title: str
    page: Page
    check: Callable[[Evidence, Sequence[Result]], list[Result]]
    """Given the evidence and the results of the rules before it in the registry."""

    def finding(
        self, severity: Severity, message: str, evidence: Sequence[Seen], fix: str
    ) -> Finding:
        return Finding(self.code, severity, self.title, message, tuple(evidence), fix)

    def unknown(self, message: str, decide: str) -> Unknown:
        return Unknown(self.code, self.title, message, decide)


def per_rank(
    check: Callable[[RankEvidence], list[Result]],
) -> Callable[[Evidence, Sequence[Result]], list[Result]]:
    """Run a check on each rank; the same result on several ranks becomes one that names them."""

    def run(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
        merged: dict[str, Result] = {}
        for rank in evidence.ranks:
            for result in check(rank):
                before = merged.get(result.message)
                ranks = (*before.ranks, rank.label) if before is not None else (rank.label,)
                merged[result.message] = replace(before or result, ranks=ranks)
        return list(merged.values())

    return run
