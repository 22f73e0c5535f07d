"""Values of the tapped tensors (level ``stats``): per site and slot, over time, over ranks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sglang_eagle3_probe.analysis.rank_values import SiteComparison
from sglang_eagle3_probe.analysis.slot_values import Shares, SiteValues, SlotValues
from sglang_eagle3_probe.report.facts import number
from sglang_eagle3_probe.report.sparkline import Sparkline
from sglang_eagle3_probe.report.wiring import table
from sglang_eagle3_probe.rules.evidence import Evidence, RankEvidence


def rank_with_values(group: Sequence[RankEvidence]) -> RankEvidence | None:
    """The first rank of a group that recorded values."""
    return next((rank for rank in group if rank.values), None)


def slot_values_table(rank: RankEvidence, wide: bool) -> Table:
    """One row per site and slot. RMS is per row, over its columns."""
    result = table(gap=2 if wide else 1)
    result.add_column("site", no_wrap=True)
    result.add_column("slot", justify="right", no_wrap=True)
    result.add_column("h", justify="right", no_wrap=True)
    if wide:
        result.add_column("rows", justify="right", no_wrap=True)
    result.add_column("RMS mean (min to max)", no_wrap=True)
    result.add_column("absmax", justify="right", no_wrap=True)
    result.add_column("NaN/inf", justify="right", no_wrap=True)
    width = 20 if wide else 10
    result.add_column("in time", no_wrap=True, min_width=width)
    for values in rank.values.values():
        for place, slot in enumerate(values.slots):
            boundary = values.boundary(place)
            cells: list[RenderableType] = [
                values.site if not place else "",
                str(place),
                "-" if boundary is None else str(boundary),
            ]
            if wide:
                cells.append(str(slot.rows))
            bad = Text(str(slot.nonfinite), style="bold red" if slot.nonfinite else "")
            cells += [
                rms_text(slot),
                number(slot.absmax),
                bad,
                Sparkline(points(values, place), width),
            ]
            result.add_row(*cells)
    return result


def rms_text(slot: SlotValues) -> Text:
    """``1.02 (0.8 to 1.31)``."""
    text = f"{number(slot.rms_mean)} ({number(slot.rms_min)} to {number(slot.rms_max)})"
    return Text(text, style="bold red" if slot.dead else "")


def points(values: SiteValues, place: int) -> list[tuple[float, bool]]:
    """(RMS, non-finite values seen) of the newest windows of a slot."""
    return [(p.rms[place], p.nonfinite[place]) for p in values.recent if place < len(p.rms)]


HOW = {"replay": "in graph replays", "eager": "in eager forwards", "mixed": "in both kinds"}


def site_lines(rank: RankEvidence, evidence: Evidence) -> list[tuple[str, str]]:
    """How the sites were tapped, how much of them, and what they were compared with."""
    by_way: dict[str, dict[str, list[str]]] = {}
    for values in rank.values.values():
        lost = f" ({values.lost_ticks} more not read)" if values.lost_ticks else ""
        amount = f"{values.rows}/{values.ticks}{lost}"
        by_way.setdefault(values.tapped, {}).setdefault(amount, []).append(values.site)
    lines: list[tuple[str, str]] = []
    for way, alike in by_way.items():
        parts = [f"{amount} {', '.join(sites)}" for amount, sites in alike.items()]
        lines.append((HOW[way], f"rows/forwards {'; '.join(parts)}"))
    found = [f"{v.site} {_found(v.found)}" for v in rank.values.values() if v.found.rows]
    if found:
        lines.append(("from the target", "; ".join(found)))
    compared = [c for c in evidence.rank_comparisons if rank.label in c.ranks]
    if compared:
        lines.append(("ranks compared", ranks_text(compared)))
    return lines


def _found(seen: Shares) -> str:
    if not seen.misses:
        return f"all {seen.rows} rows"
    return f"{seen.hits} of {seen.rows} rows"


def ranks_text(compared: Sequence[SiteComparison]) -> str:
    """``scheduler tp0, scheduler tp1: all 1248 forwards at 13 sites are equal``."""
    ranks = ", ".join(dict.fromkeys(label for c in compared for label in c.ranks))
    fair = [c for c in compared if c.ticks and not c.shifted]
    if not fair:
        return f"{ranks}: no forward could be compared"
    unequal = [f"{c.site} {c.equal} of {c.ticks} equal" for c in fair if c.differing]
    equal = [c for c in fair if not c.differing]
    parts = ["; ".join(unequal)] if unequal else []
    if equal:
        total = sum(c.ticks for c in equal)
        parts.append(f"all {total} forwards compared at {len(equal)} sites are equal")
    return f"{ranks}: {'; '.join(parts)}"


def proven_lines(rank: RankEvidence) -> dict[int, str]:
    """Slot -> proof that it is the embedding, where every row compared equals it."""
    proofs: dict[int, int] = {}
    failed: set[int] = set()
    for values in rank.values.values():
        for place, slot in enumerate(values.slots):
            if values.boundary(place) != 0 or not slot.embedding.rows:
                continue
            if slot.proven_embedding:
                proofs[place] = proofs.get(place, 0) + slot.embedding.rows
            else:
                failed.add(place)
    return {
        place: f"proven: equals the embedding of the input ids in {rows} rows"
        for place, rows in proofs.items()
        if place not in failed
    }


def compact_lines(rank: RankEvidence) -> RenderableType | None:
    """One line per aux slot, for reports next to each other; ``None`` without values."""
    values = rank.values.get("aux_verify") or rank.values.get("aux_prefill")
    if values is None:
        return None
    proven = proven_lines(rank)
    grid = Table.grid(padding=(0, 1))
    for place, slot in enumerate(values.slots):
        boundary = values.boundary(place)
        h = "?" if boundary is None else str(boundary)
        words = Text(f"slot {place} h {h:>2}  RMS {number(slot.rms_mean):<6}")
        words.append(f" absmax {number(slot.absmax)}")
        if slot.nonfinite:
            words.append(f" {slot.nonfinite} NaN/inf", style="bold red")
        if place in proven:
            words.append(" proven", style="green")
        grid.add_row(words, Sparkline(points(values, place), 8))
    return grid
