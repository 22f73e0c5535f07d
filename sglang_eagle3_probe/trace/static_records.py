"""What the static rules said of the checkpoints when the server loaded the draft."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sglang_eagle3_probe.trace.record_base import Record


class StaticEvidence(msgspec.Struct, kw_only=True):
    """One thing that was looked at: a key of a config, a tensor, an argument."""

    what: str
    value: Any
    where: str


class StaticFinding(msgspec.Struct, kw_only=True):
    """Something wrong, doubtful or worth knowing in the files."""

    code: str
    severity: Literal["error", "warning", "note"]
    title: str
    message: str
    evidence: list[StaticEvidence]
    fix: str


class StaticUnknown(msgspec.Struct, kw_only=True):
    """A rule that could not decide, and what would decide it."""

    code: str
    title: str
    message: str
    decide: str


class StaticFindings(Record, tag="static_findings", kw_only=True):
    """The static rules, run on configs, checkpoint headers and the arguments in force.

    Written once, by the first process of each host, soon after the draft is loaded.
    """

    sglang_version: str
    target_path: str
    draft_path: str
    rules: int
    """How many rules ran; 0 when the files could not be read (``notes`` say why)."""
    findings: list[StaticFinding]
    """Worst first."""
    unknown: list[StaticUnknown]
    arguments: dict[str, Any]
    """Server arguments judged: those in force."""
    asked: dict[str, Any] | None
    """As given on the command line; ``None`` where that is not known."""
    notes: list[str]
    """What was not read or not applied, and why."""
    seconds: float
    """Reading and judging, on a thread of its own."""
