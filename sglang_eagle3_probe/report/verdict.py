"""A trace judged: evidence, results, and the one sentence that comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_eagle3_probe.analysis.understanding import Given
from sglang_eagle3_probe.rules.base import Finding, Result, Unknown
from sglang_eagle3_probe.rules.evidence import Evidence, collect
from sglang_eagle3_probe.rules.judging import exit_code
from sglang_eagle3_probe.rules.registry import judge
from sglang_eagle3_probe.trace.reader import Trace

Level = Literal["wrong", "doubtful", "undecided", "clean"]
"""Errors; warnings; nothing wrong but something that no rule could decide; nothing at all."""


@dataclass(frozen=True)
class Report:
    """Everything a report is made of."""

    evidence: Evidence
    results: list[Result]

    @property
    def findings(self) -> list[Finding]:
        """Worst first."""
        return [r for r in self.results if isinstance(r, Finding)]

    @property
    def unknown(self) -> list[Unknown]:
        return [r for r in self.results if isinstance(r, Unknown)]

    @property
    def exit_code(self) -> int:
        return exit_code(self.results)

    @property
    def level(self) -> Level:
        severities = {f.severity for f in self.findings}
        if "error" in severities:
            return "wrong"
        if "warning" in severities:
            return "doubtful"
        return "undecided" if self.unknown else "clean"


def build(trace: Trace, given: Given | None = None) -> Report:
    """Judge the newest run of a trace. given: the trainer's accuracies, plain decoding's speed."""
    evidence = collect(trace, given)
    return Report(evidence, judge(evidence))


def accept_length_text(report: Report) -> str:
    """``accept length 2.88 [2.81, 2.95]``, or that it is not known."""
    seen = report.evidence.acceptance
    if seen.accept_length is None:
        return "accept length not known (no verify round yet)"
    text = f"accept length {seen.accept_length:.2f}"
    interval = seen.accept_length_interval
    return f"{text} [{interval.low:.2f}, {interval.high:.2f}]" if interval else text


def sentence(report: Report) -> str:
    """The verdict."""
    serious = [f for f in report.findings if f.severity != "note"]
    length = accept_length_text(report)
    if serious:
        first = serious[0].message
        subject = "The draft was " + first if first.startswith("trained on") else _capital(first)
        others = len(serious) - 1
        more = f" ({others} more finding{'s' if others > 1 else ''})" if others else ""
        tail = "" if first.startswith("accept length") else f"; {length}"
        return f"{subject}{tail}{more}."
    if any(u.code == "E3P101" for u in report.unknown):
        return (
            "Nothing wrong was found in the wiring, but what the draft was trained on is not "
            f"known; {length}."
        )
    if report.unknown:
        codes = ", ".join(sorted({u.code for u in report.unknown}))
        return f"Nothing wrong was found, but {codes} could not be decided; {length}."
    return f"Nothing wrong was found: the draft is served what it was trained on; {length}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
