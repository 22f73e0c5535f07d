"""Several traces next to each other, in short."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sglang_eagle3_probe.report import facts
from sglang_eagle3_probe.report.curve import Bar
from sglang_eagle3_probe.report.terminal import STYLES, pairs, verdict
from sglang_eagle3_probe.report.values import compact_lines
from sglang_eagle3_probe.report.verdict import Report, accept_length_text, build
from sglang_eagle3_probe.report.wiring import fc_table, slot_table
from sglang_eagle3_probe.trace.reader import Trace

COLUMN = 58
"""Characters a column needs; two fit into 120."""


def side_by_side(traces: Sequence[tuple[str, Trace]], console: Console | None = None) -> None:
    """Print short reports as columns where they fit, else one below the other."""
    show([(name, build(trace)) for name, trace in traces], console or Console())


def show(reports: Sequence[tuple[str, Report]], console: Console) -> None:
    """Print reports already made."""
    across = max(1, min(len(reports), console.width // COLUMN))
    for start in range(0, len(reports), across):
        chunk = reports[start : start + across]
        grid = Table.grid(padding=(0, 4), expand=across > 1)
        for _ in range(across):
            grid.add_column(ratio=1)
        # Row by row, so that the same subject stands at the same height in every column.
        rows = [_rows(name, report) for name, report in chunk]
        for cells in zip(*rows, strict=True):
            grid.add_row(*cells)
        console.print(grid)


def _rows(name: str, report: Report) -> list[RenderableType]:
    evidence = report.evidence
    rank = evidence.models[0] if evidence.models else None
    slots: RenderableType = Text("no layer ids recorded", style="dim")
    fc: RenderableType = Text("no draft forward recorded", style="dim")
    if rank is not None and rank.layer_ids is not None:
        slots = slot_table(rank, "compact")
    if rank is not None and rank.drafts:
        fc = fc_table(rank)
        fc.columns = fc.columns[:4]
    values = compact_lines(rank) if rank is not None else None
    lines = [
        ("list", facts.how_read(rank.layer_ids) if rank and rank.layer_ids else "-"),
        ("map", facts.map_line(rank.vocab_map) if rank else "-"),
        ("weights", facts.weights_line(rank.weights) if rank else "-"),
    ]
    return [
        Text.assemble((f"== {name} ==", "bold")),
        Group(verdict(report), Text()),
        Group(slots, Text()),
        Group(fc, Text()),
        Group(values, Text()) if values is not None else Text(end=""),
        Group(pairs(lines), Text()),
        Group(_acceptance(report), Text()),
        Group(_findings(report), Text()),
    ]


def _acceptance(report: Report) -> RenderableType:
    seen = report.evidence.acceptance
    grid = Table.grid(padding=(0, 1))
    for rate in seen.unconditional:
        share = rate.share
        number = "unseen" if share is None else f"{share:.3f}"
        grid.add_row(f"draft {rate.position}", Bar(share or 0.0), number)
    head = Text(accept_length_text(report), style="bold")
    rounds = Text(f"{seen.rounds} rounds of {seen.requests} requests", style="dim")
    return Group(head, rounds, grid)


def _findings(report: Report) -> RenderableType:
    serious = [f for f in report.findings if f.severity != "note"]
    if not serious:
        return Text("no findings", style="green")
    return Group(
        *(
            Text.assemble(
                (f"{f.code} {f.severity} ", STYLES[f.severity]),
                f.message,
                ("\n  Fix: ", "green"),
                f.fix,
            )
            for f in serious
        )
    )
