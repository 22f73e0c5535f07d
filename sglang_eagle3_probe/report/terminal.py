"""The report for people, printed with rich."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule as Line
from rich.table import Table
from rich.text import Text

from sglang_eagle3_probe.report import facts, understanding
from sglang_eagle3_probe.report.curve import acceptance_section
from sglang_eagle3_probe.report.values import (
    proven_lines,
    rank_with_values,
    site_lines,
    slot_values_table,
)
from sglang_eagle3_probe.report.verdict import Report, sentence
from sglang_eagle3_probe.report.wiring import aux_table, fc_table, slot_table
from sglang_eagle3_probe.rules.base import Finding, Result, Severity, Unknown
from sglang_eagle3_probe.rules.evidence import RankEvidence

STYLES: dict[str, str] = {
    "error": "bold red",
    "warning": "bold yellow",
    "note": "cyan",
    "wrong": "bold white on red",
    "doubtful": "bold black on yellow",
    "undecided": "bold white on blue",
    "clean": "bold white on green",
}
WIDE = 100
WORDS = {"wrong": " WRONG ", "doubtful": " DOUBTFUL ", "undecided": " UNDECIDED ", "clean": " OK "}


def render(report: Report, *, wide: bool = False) -> RenderableType:
    """The whole report, the verdict first. wide: for 100 columns and more."""
    evidence = report.evidence
    parts: list[RenderableType] = [
        verdict(report),
        _subject(report),
        *findings(report.findings),
        *not_decided(report.unknown),
    ]
    for group in facts.wiring_groups(evidence.models):
        parts += _wiring(group, wide)
        parts += _values(report, group, wide)
    if evidence.models:
        parts += [heading("Arguments"), *_arguments(evidence.models[0])]
    parts += [heading("Acceptance"), acceptance_section(report)]
    parts += _understood(report)
    parts += [heading("The probe itself"), _probe_itself(report)]
    return Group(*parts)


def render_acceptance(report: Report) -> RenderableType:
    """The verdict and what is known of the acceptance: one screen."""
    return Group(
        verdict(report),
        _subject(report),
        *(
            _finding_line(f.code, f.severity, f.message, _apart(f))
            for f in report.findings
            if f.severity != "note"
        ),
        heading("Acceptance"),
        acceptance_section(report),
        *_understood(report),
    )


def show(report: Report, console: Console, *, acceptance_alone: bool = False) -> None:
    """Print it."""
    if acceptance_alone:
        console.print(render_acceptance(report))
    else:
        console.print(render(report, wide=console.width >= WIDE))


def heading(text: str) -> RenderableType:
    return Group(Text(), Line(Text(text, style="bold"), align="left", style="dim"))


def verdict(report: Report) -> RenderableType:
    level = report.level
    return Text.assemble((WORDS[level], STYLES[level]), " ", (sentence(report), "bold"))


def _subject(report: Report) -> RenderableType:
    evidence = report.evidence
    words = [f"trace {evidence.path}"]
    header = next((r.header for r in evidence.ranks if r.header is not None), None)
    if header is not None:
        words.append(f"SGLang {header.sglang_version}")
    model = evidence.models[0].arguments if evidence.models else None
    if model is not None:
        words.append(f"{model.target_architecture} + {model.draft_architecture or 'no draft'}")
    words.append(", ".join(rank.label for rank in evidence.ranks))
    if evidence.older_runs:
        words.append(f"newest of {evidence.older_runs + 1} runs in this directory")
    return Text(" | ".join(words), style="dim")


# -- findings ---------------------------------------------------------------------------------


def findings(found: list[Finding]) -> list[RenderableType]:
    """Findings, worst first; notes in short form."""
    if not found:
        return []
    parts: list[RenderableType] = [heading("Findings")]
    for finding in found:
        parts.append(_finding(finding) if finding.severity != "note" else _note(finding))
    return parts


def _finding_line(code: str, severity: Severity | str, message: str, apart: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    style = STYLES.get(severity, "magenta")
    grid.add_row(Text(code, style), Text(severity, style), Text(message + apart))
    return grid


def _apart(result: Result) -> str:
    """Where it was seen, as far as that is not plain."""
    words = [f" [{', '.join(result.ranks)}]"] if len(result.ranks) > 1 else []
    if result.source == "files":
        words.append(" (from the files)")
    if result.also:
        words.append(f" (also, from the files: {', '.join(result.also)})")
    return "".join(words)


def _finding(finding: Finding) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(ratio=3, overflow="fold")
    rows.add_column(style="dim", ratio=2, overflow="fold")
    for seen in finding.evidence:
        rows.add_row(seen.what, _value(seen.value), seen.where)
    return Group(
        _finding_line(finding.code, finding.severity, finding.message, _apart(finding)),
        Padding(rows, (0, 0, 0, 4)),
        Padding(Text.assemble(("Fix: ", "bold green"), finding.fix), (0, 0, 1, 4)),
    )


def _note(finding: Finding) -> RenderableType:
    return Group(
        _finding_line(finding.code, finding.severity, finding.message, _apart(finding)),
        Padding(Text.assemble(("Fix: ", "green"), finding.fix), (0, 0, 1, 4)),
    )


def not_decided(unknown: list[Unknown]) -> list[RenderableType]:
    """What no rule could decide, and what would."""
    if not unknown:
        return []
    parts: list[RenderableType] = [heading("Not decided")]
    for item in unknown:
        parts.append(_finding_line(item.code, "unknown", item.message, _apart(item)))
        parts.append(Padding(Text.assemble(("To decide: ", "bold"), item.decide), (0, 0, 1, 4)))
    return parts


def _value(value: Any) -> Text:
    if isinstance(value, list) and value and isinstance(value[0], str):
        return Text("\n".join(value[:12]) + (f"\n... {len(value) - 12} more" * (len(value) > 12)))
    return Text("-" if value is None else str(value))


# -- wiring -----------------------------------------------------------------------------------


def _wiring(group: list[RankEvidence], wide: bool) -> list[RenderableType]:
    rank = group[0]
    where = ", ".join(member.label for member in group)
    parts: list[RenderableType] = [heading(f"Wiring ({where})")]
    ids = rank.layer_ids
    lines: list[tuple[str, str]] = []
    if ids is None:
        parts.append(Text("No layer ids were recorded.", style="dim"))
    else:
        parts.append(slot_table(rank, "wide" if wide else "narrow"))
        lines += [("list", facts.how_read(ids)), (facts.stock_name(ids), facts.stock(ids))]
        lines += [(f"slot {place}", proof) for place, proof in proven_lines(rank).items()]
        if ids.patches_applied:
            lines.append(("patched by probe", ", ".join(ids.patches_applied)))
        lines += [(f"unread: {key}", str(found)) for key, found in ids.ignored_keys.items()]
    parts.append(pairs(lines))
    if rank.aux:
        parts += [Text(), aux_table(rank)]
    if rank.drafts:
        parts += [Text(), fc_table(rank)]
    handed = facts.handed_line(rank)
    parts += [
        Text(),
        pairs(
            [
                *([("handed to draft", handed)] if handed else []),
                ("vocabulary map", facts.map_line(rank.vocab_map)),
                ("draft weights", facts.weights_line(rank.weights)),
            ]
        ),
    ]
    return parts


def _values(report: Report, group: list[RankEvidence], wide: bool) -> list[RenderableType]:
    rank = rank_with_values(group)
    if rank is None:
        return []
    others = sum(bool(member.values) for member in group) - 1
    title = f"Values (level {rank.header.level if rank.header else 'stats'}; {rank.label}"
    title += f"; {others} more in --json)" if others else ")"
    return [
        heading(title),
        slot_values_table(rank, wide),
        Text(),
        pairs(site_lines(rank, report.evidence)),
    ]


def pairs(rows: list[tuple[str, str]]) -> RenderableType:
    """Name and value, the values aligned."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(value))
    return grid


def _arguments(rank: RankEvidence) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(facts.arguments_in_short(rank))]
    changed = facts.arguments_that_differ(rank)
    if changed:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("changed by SGLang", "asked", "in force"):
            table.add_column(name)
        for name, asked, force in changed:
            table.add_row(name, str(asked), Text(str(force), style="yellow"))
        parts.append(table)
    return parts


# -- acceptance understood --------------------------------------------------------------------


def _understood(report: Report) -> list[RenderableType]:
    """Causes, slices, prediction, economics and references, each where there is something."""
    known, seen = report.evidence.understood, report.evidence.acceptance
    if not seen.rounds:
        return []
    parts: list[RenderableType] = []
    causes = understanding.refusals(known.anatomy)
    if causes is not None:
        parts += [heading("Why drafts are refused"), causes]
    by = understanding.slices(known.slices)
    if known.references is not None:
        by.append(("published", understanding.references(known.references, seen.accept_length)))
    if by:
        parts += [heading("Accept length by"), pairs(by)]
    if known.comparison is not None:
        parts += [heading("Against training"), understanding.prediction(known.comparison)]
    worth = understanding.economics(known.economics)
    if worth:
        parts += [heading("What it is worth"), pairs(worth)]
    return parts


# -- the probe itself -------------------------------------------------------------------------


def _probe_itself(report: Report) -> RenderableType:
    rows: list[tuple[str, str]] = []
    for rank in report.evidence.ranks:
        rows += _seams(rank)
        if rank.static_findings is not None:
            rows.append((f"files judged {rank.label}", facts.files_line(rank.static_findings)))
        if rank.cost is not None:
            rows.append((f"own cost {rank.label}", facts.cost_line(rank.cost)))
        captured = facts.captures_line(rank.captures)
        if captured:
            rows.append((f"captured {rank.label}", captured))
        rows.append((f"losses {rank.label}", facts.losses_line(rank)))
        rows.append(("files read", ", ".join(path.name for path in rank.files)))
    return pairs(rows)


def _seams(rank: RankEvidence) -> list[tuple[str, str]]:
    if rank.seams is None:
        return [(f"seams {rank.label}", "not recorded")]
    seams = rank.seams.seams
    rows = [(f"seams {rank.label}", facts.seams_line(rank.seams))]
    # Absent ones are no fault: the table knows places of releases older and newer than this.
    for state, label in (("failed", "FAILED"), ("not_imported", "not imported")):
        names = [
            f"{s.name} ({s.why})" if s.why and state == "failed" else s.name
            for s in seams
            if s.state == state
        ]
        if names:
            rows.append((f"  {label}", ", ".join(dict.fromkeys(names))))
    return rows
