"""The top of a run's part of the page: verdict, findings, the fix, the numbers that matter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sglang_eagle3_probe.report.html.figure import Section, Table, words
from sglang_eagle3_probe.report.html.sections import sections
from sglang_eagle3_probe.report.html.trace_sections import trace_sections
from sglang_eagle3_probe.report.verdict import Level, Report, sentence
from sglang_eagle3_probe.rules.base import Finding, Result, Unknown

BADGES: dict[Level, str] = {
    "wrong": "Wrong",
    "doubtful": "Doubtful",
    "undecided": "Undecided",
    "clean": "OK",
}
TOP = 3
MOST_LINES = 12
MOST_LETTERS = 2000


@dataclass(frozen=True)
class Shown:
    """One result of a rule."""

    anchor: str
    code: str
    kind: str
    """``error``, ``warning``, ``note`` or ``not decided``."""
    title: str
    message: str
    apart: str
    """Where it was seen, as far as that is not plain."""
    evidence: Table | None
    advice_label: str
    advice: str


@dataclass(frozen=True)
class RunView:
    """One run, ready for the template."""

    prefix: str
    """Before every id of this run; empty on a page of one run."""
    name: str
    level: Level
    badge: str
    sentence: str
    fix: str
    fix_label: str
    findings: list[Shown]
    unknown: list[Shown]
    subject: list[tuple[str, str]]
    numbers: list[tuple[str, str, str]]
    """(label, value, small print)."""
    sections: list[Section]

    @property
    def top(self) -> list[Shown]:
        return self.findings[:TOP]

    @property
    def more(self) -> int:
        return max(0, len(self.findings) - TOP)


def run_view(report: Report, name: str, prefix: str = "") -> RunView:
    """Everything the template shows of one run."""
    findings = [
        _finding(finding, f"{prefix}finding-{n}") for n, finding in enumerate(report.findings, 1)
    ]
    unknown = [_unknown(item, f"{prefix}open-{n}") for n, item in enumerate(report.unknown, 1)]
    label, fix = _fix(report)
    return RunView(
        prefix=prefix,
        name=name,
        level=report.level,
        badge=BADGES[report.level],
        sentence=sentence(report),
        fix=fix,
        fix_label=label,
        findings=findings,
        unknown=unknown,
        subject=_subject(report),
        numbers=_numbers(report),
        sections=[*sections(report), *trace_sections(report)],
    )


def _fix(report: Report) -> tuple[str, str]:
    serious = [f for f in report.findings if f.severity != "note"]
    if serious:
        return "Fix first", serious[0].fix
    if report.unknown:
        return "To decide", report.unknown[0].decide
    return "", ""


def _finding(finding: Finding, anchor: str) -> Shown:
    rows = [(seen.what, _value(seen.value), seen.where) for seen in finding.evidence]
    table = Table(("looked at", "found", "where"), rows, words(0, 1, 2)) if rows else None
    return Shown(
        anchor,
        finding.code,
        finding.severity,
        finding.title,
        _capital(finding.message),
        _apart(finding),
        table,
        "Fix",
        finding.fix,
    )


def _unknown(item: Unknown, anchor: str) -> Shown:
    return Shown(
        anchor,
        item.code,
        "not decided",
        item.title,
        _capital(item.message),
        _apart(item),
        None,
        "To decide",
        item.decide,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _apart(result: Result) -> str:
    ranks = result.ranks
    parts = [", ".join(ranks[:6]) + (f" and {len(ranks) - 6} more" if len(ranks) > 6 else "")]
    if result.source == "files":
        parts.append("from the files")
    if result.also:
        parts.append(f"also, from the files: {', '.join(result.also)}")
    return "; ".join(filter(None, parts))


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], str):
        more = len(value) - MOST_LINES
        value = ", ".join(map(str, value[:MOST_LINES])) + (f", ... {more} more" if more > 0 else "")
    text = "-" if value is None else str(value)
    return text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + " ..."


def _subject(report: Report) -> list[tuple[str, str]]:
    evidence = report.evidence
    rows = [("trace", str(evidence.path))]
    header = next((r.header for r in evidence.ranks if r.header is not None), None)
    if header is not None:
        rows.append(("SGLang", header.sglang_version))
        rows.append(("started", _moment(header.wall_s)))
    book = next((r.arguments for r in evidence.models if r.arguments is not None), None)
    if book is not None:
        rows.append(
            ("target", " ".join(filter(None, (book.target_architecture, book.target_path))))
        )
        draft = " ".join(filter(None, (book.draft_architecture, book.draft_path)))
        rows.append(("draft", draft or "none"))
    labels = [rank.label for rank in evidence.ranks]
    more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
    rows.append(("processes", ", ".join(labels[:8]) + more))
    if evidence.older_runs:
        rows.append(("run", f"newest of {evidence.older_runs + 1} in this directory"))
    return rows


def _moment(wall_s: float) -> str:
    try:
        moment = datetime.fromtimestamp(wall_s, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return "not known"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _numbers(report: Report) -> list[tuple[str, str, str]]:
    evidence = report.evidence
    seen, known = evidence.acceptance, evidence.understood
    if seen.accept_length is None:
        return []
    limit = seen.accept_length_interval
    ceiling = f"of at most {known.setting[0] + 1}" if known.setting is not None else ""
    between = f"[{limit.low:.2f}, {limit.high:.2f}]" if limit is not None else ""
    small = ", ".join(filter(None, (between, ceiling)))
    numbers = [("accept length", f"{seen.accept_length:.2f}", small)]
    if seen.accept_rate is not None:
        small = "correct drafts / proposed positions"
        numbers.append(("accept rate", f"{seen.accept_rate:.1%}", small))
    if known.comparison is not None:
        small = f"by the trainer's accuracies, {known.comparison.prediction.source}"
        numbers.append(("promised length", f"{known.comparison.predicted_length:.2f}", small))
    main = known.economics.main
    if main is not None and main.speed_up is not None:
        small = f"against plain decoding, batch size {main.batch_size}"
        numbers.append(("speed", f"{main.speed_up:.2f}\u00d7", small))
    elif main is not None:
        small = f"tokens/s of one request, batch size {main.batch_size}"
        numbers.append(("speed", f"{main.tokens_per_s:.1f}", small))
    numbers.append(("rounds", f"{seen.rounds:,}", f"of {seen.requests:,} requests"))
    return numbers
