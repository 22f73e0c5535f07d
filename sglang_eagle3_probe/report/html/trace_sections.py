"""The last sections: arguments, what the probe did and cost, and what the trace lacks."""

from __future__ import annotations

from typing import Any

from sglang_eagle3_probe.report import facts
from sglang_eagle3_probe.report.html.figure import Section, Table, words
from sglang_eagle3_probe.report.verdict import Report
from sglang_eagle3_probe.rules.evidence import RankEvidence

MOST_LETTERS = 400


def trace_sections(report: Report) -> list[Section]:
    """Arguments, the files' judgement, the probe itself."""
    return [_arguments(report), _files(report), _probe(report)]


def _arguments(report: Report) -> Section:
    name, title = "arguments", "Arguments"
    rank = next((r for r in report.evidence.models if r.arguments is not None), None)
    if rank is None or rank.arguments is None:
        return Section(
            name,
            title,
            missing="Arguments were not recorded; they are written when the scheduler starts.",
        )
    book = rank.arguments
    differ = {changed for changed, _, _ in facts.arguments_that_differ(rank)}
    keys = [*book.asked, *(key for key in book.in_force if key not in book.asked)]
    rows = [
        (
            key,
            _text(book.asked[key]) if key in book.asked else "(not given)",
            _text(book.in_force[key]) if key in book.in_force else "(not recorded)",
            "changed by SGLang" if key in differ else "",
        )
        for key in sorted(keys, key=lambda key: (key not in differ, key))
    ]
    told = [row for row in rows if row[3] or row[0] in book.asked]
    rest = [row for row in rows if row not in told]
    pairs = [
        ("target", _model(book.target_architecture, book.target_path)),
        ("draft", _model(book.draft_architecture, book.draft_path)),
        ("worker", f"{book.worker_class or 'not recorded'} ({book.worker_generation})"),
        (
            "sizes",
            f"target {book.target_num_layers} layers of {book.target_hidden_size}, vocabulary "
            f"{book.target_vocab_size}; draft hidden {book.draft_hidden_size}, vocabulary "
            f"{book.draft_vocab_size}",
        ),
    ]
    header = ("argument", "asked", "in force", "")
    tables = [("Asked and in force", Table(header, told, words(0, 1, 2, 3)))] if told else []
    folded = [(f"{len(rest)} more that were not given", Table(header, rest, words(0, 1, 2, 3)))]
    lead = facts.arguments_in_short(rank) + "."
    return Section(name, title, lead, pairs=pairs, tables=tables, folded=folded if rest else ())


def _model(architecture: str, path: str) -> str:
    return ", ".join(filter(None, (architecture, path))) or "not recorded"


def _text(value: Any, most: int = MOST_LETTERS) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= most else text[:most] + " ..."


def _files(report: Report) -> Section:
    name, title = "files", "Judged from the files"
    judged = [r for r in report.evidence.ranks if r.static_findings is not None]
    if not judged:
        return Section(
            name,
            title,
            missing="No process judged the checkpoints' files. A probed server does when it loads "
            "the draft; sglang-eagle3-probe doctor --target T --draft D does it without a server.",
        )
    pairs = []
    rows: list[tuple[str, ...]] = []
    for rank in judged:
        found = rank.static_findings
        assert found is not None
        pairs.append((rank.label, facts.files_line(found)))
        for finding in found.findings:
            rows.append((finding.code, finding.severity, finding.message, finding.fix))
        for item in found.unknown:
            rows.append((item.code, "not decided", item.message, item.decide))
    table = Table(("rule", "", "what it says", "fix, or what decides it"), rows, words(0, 1, 2, 3))
    lead = "Configs, checkpoint headers and arguments, read by the server that loaded the draft."
    return Section(
        name, title, lead, pairs=pairs, tables=[("Static findings", table)] if rows else []
    )


def _probe(report: Report) -> Section:
    evidence = report.evidence
    rows = [(rank.label, _cost(rank), facts.losses_line(rank)) for rank in evidence.ranks]
    tables = [("Cost and losses", Table(("process", "own cost", "losses"), rows, words(0, 1, 2)))]
    pairs: list[tuple[str, str]] = []
    header = next((r.header for r in evidence.ranks if r.header is not None), None)
    if header is not None:
        others = "".join(f", {name} {version}" for name, version in header.versions.items())
        versions = f"probe {header.probe_version}, SGLang {header.sglang_version}{others}"
        pairs += [("versions", versions), ("level", header.level)]
        pairs.append(("patches", ", ".join(header.patches) or "none"))
        settings = ", ".join(f"{key}={value}" for key, value in header.settings.items())
        pairs.append(("settings", _text(settings or "all default", 2000)))
    for rank in evidence.ranks:
        if rank.seams is not None:
            pairs.append((f"attached, {rank.label}", facts.seams_line(rank.seams)))
            failed = [f"{s.name}: {s.why}" for s in rank.seams.seams if s.state == "failed"]
            pairs += [("  failed", text) for text in dict.fromkeys(failed)]
        if len(pairs) > 40:
            pairs.append(("more processes", "in --json"))
            break
    for rank in evidence.ranks:
        captured = facts.captures_line(rank.captures)
        if captured:
            pairs.append((f"captured, {rank.label}", captured))
    files = [path.name for rank in evidence.ranks for path in rank.files]
    more = f" and {len(files) - 12} more" if len(files) > 12 else ""
    pairs.append(("files read", ", ".join(files[:12]) + more))
    problems = [
        (rank.label, p.kind, p.file, str(p.count), p.detail)
        for rank in evidence.ranks
        for p in rank.problems
    ]
    if problems:
        columns = ("process", "kind", "file", "count", "what")
        tables.append(("Damage in the files", Table(columns, problems, words(0, 1, 2, 4))))
    return Section("probe", "The probe itself", pairs=pairs, tables=tables)


def _cost(rank: RankEvidence) -> str:
    if rank.cost is None:
        return "not recorded (written after the first few seconds of rounds)"
    return facts.cost_line(rank.cost)
