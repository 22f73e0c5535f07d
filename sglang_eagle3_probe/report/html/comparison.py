"""Several runs on one page: how they differ, before each is told on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.report import facts
from sglang_eagle3_probe.report.html.figure import Missing, Shown, Table, drawn, words
from sglang_eagle3_probe.report.html.slice_figures import Row, dots
from sglang_eagle3_probe.report.html.verdict_view import BADGES
from sglang_eagle3_probe.report.verdict import Report


@dataclass(frozen=True)
class Comparison:
    """What stands above the runs."""

    sentence: str
    figure: Shown
    table: Table


def compare(reports: Sequence[tuple[str, Report]]) -> Comparison:
    """Runs in the order named."""
    return Comparison(_sentence(reports), _figure(reports), _table(reports))


def _sentence(reports: Sequence[tuple[str, Report]]) -> str:
    measured = [
        (report.evidence.acceptance.accept_length, name)
        for name, report in reports
        if report.evidence.acceptance.accept_length is not None
    ]
    if len(measured) < 2:
        return f"{len(reports)} runs; fewer than two have verify rounds, so lengths do not compare."
    (least, worst), (most, best) = min(measured), max(measured)
    return (
        f"Accept length from {least:.2f} ({worst}) to {most:.2f} ({best}). Whether a difference "
        "exceeds the spread between requests, sglang-eagle3-probe diff says of any two."
    )


def _figure(reports: Sequence[tuple[str, Report]]) -> Shown:
    title = "Accept length of each run"
    rows = []
    for name, report in reports:
        seen = report.evidence.acceptance
        if seen.accept_length is not None:
            rows.append(Row(name, seen.accept_length, seen.accept_length_interval))
    if not rows:
        return Missing("runs", title, "No run has a verify round.")
    says = "Accept length (bonus token included) with its 95 % interval over rounds."
    table = Table(
        ("run", "accept length", "95 %", "rounds"),
        [
            (
                name,
                "-" if a.accept_length is None else f"{a.accept_length:.2f}",
                "-"
                if a.accept_length_interval is None
                else f"{a.accept_length_interval.low:.2f} to {a.accept_length_interval.high:.2f}",
                str(a.rounds),
            )
            for name, a in ((name, report.evidence.acceptance) for name, report in reports)
        ],
    )
    return drawn("runs", title, says, dots(rows, None, "", low=1.0), table)


def _table(reports: Sequence[tuple[str, Report]]) -> Table:
    """One column per run, one row per subject."""
    header = ("", *(name for name, _ in reports))
    columns = [_column(report) for _, report in reports]
    rows = [(subject, *(column[subject] for column in columns)) for subject in columns[0]]
    deepest = max(len(report.evidence.acceptance.unconditional) for _, report in reports)
    for position in range(deepest):
        cells = []
        for _, report in reports:
            rates = report.evidence.acceptance.unconditional
            share = rates[position].share if position < len(rates) else None
            cells.append("-" if share is None else f"{share:.1%}")
        rows.append((f"drafts 0 to {position} right" if position else "draft 0 right", *cells))
    return Table(header, rows, words(*range(len(header))), one_per_column=True)


def _column(report: Report) -> dict[str, str]:
    evidence = report.evidence
    rank = evidence.models[0] if evidence.models else None
    ids = rank.layer_ids if rank is not None else None
    serious = [f.code for f in report.findings if f.severity != "note"]
    main = evidence.understood.economics.main
    served = "not recorded" if ids is None else str([slot.output_id for slot in ids.slots])
    trained = "not known"
    if ids is not None and ids.trained_output_ids is not None:
        trained = str(ids.trained_output_ids)
    return {
        "verdict": BADGES[report.level],
        "findings": ", ".join(dict.fromkeys(serious)) or "none",
        "served output ids": served,
        "trained output ids": trained,
        "fc": facts.fc_line(rank) if rank is not None else "not recorded",
        "vocabulary map": facts.map_line(rank.vocab_map) if rank is not None else "not recorded",
        "arguments": facts.arguments_in_short(rank) if rank is not None else "not recorded",
        "rounds": str(evidence.acceptance.rounds),
        "tokens/s": "-" if main is None else f"{main.tokens_per_s:.1f}",
    }
