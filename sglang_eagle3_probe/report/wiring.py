"""Tables of the wiring: slots, aux states, ``fc``. Units are named in every heading."""

from __future__ import annotations

from typing import Literal

from rich.table import Table
from rich.text import Text

from sglang_eagle3_probe.report.facts import fc_is_right, layer_name
from sglang_eagle3_probe.rules.evidence import RankEvidence


def table(gap: int = 2) -> Table:
    """An open table; gap: spaces between columns."""
    return Table(
        box=None, pad_edge=False, collapse_padding=True, padding=(0, gap, 0, 0), header_style="dim"
    )


Form = Literal["narrow", "wide", "compact"]
"""narrow: fits 80 columns; wide: needs 100; compact: one of two reports in 120."""


def slot_table(rank: RankEvidence, form: Form) -> Table:
    """One row per block of ``fc``'s columns, in concatenation order."""
    ids = rank.layer_ids
    assert ids is not None
    trained = ids.trained_output_ids
    result = table()
    for name, right in (("slot", True), ("boundary h", True), ("output id o", True)):
        result.add_column(name, justify="right" if right else "left", no_wrap=True)
    if trained is not None:
        result.add_column("trained o", no_wrap=True)
    if form != "compact":
        result.add_column("width", justify="right", no_wrap=True)
    if form != "narrow":
        result.add_column("what it is", no_wrap=True)
    if form != "compact":
        result.add_column("id from", overflow="fold")
    widths = next((a.widths for a in rank.aux if len(a.widths) == len(ids.slots)), [])
    rows = max(len(ids.slots), len(trained or []))
    for i in range(rows):
        slot = ids.slots[i] if i < len(ids.slots) else None
        cells: list[Text | str] = [str(i)]
        cells += [str(slot.boundary), str(slot.output_id)] if slot else ["-", "-"]
        if trained is not None:
            cells.append(_trained(trained, i, slot.output_id if slot else None))
        if form != "compact":
            cells.append(str(widths[i]) if slot and i < len(widths) else "-")
        if form != "narrow":
            cells.append(layer_name(slot.boundary) if slot else "not served")
        if form != "compact":
            cells.append(slot.origin if slot else "not served")
        result.add_row(*cells)
    return result


def _trained(trained: list[int], place: int, served: int | None) -> Text:
    if place >= len(trained):
        return Text("none  DIFFERS", style="bold red")
    if trained[place] == served:
        return Text(f"{trained[place]:>2}  ok", style="green")
    return Text(f"{trained[place]:>2}  DIFFERS", style="bold red")


def aux_table(rank: RankEvidence) -> Table:
    """What arrived at the target's logits processor."""
    result = table()
    result.add_column("aux states in", no_wrap=True)
    result.add_column("states x width", no_wrap=True)
    result.add_column("dtype", no_wrap=True)
    result.add_column("mode", no_wrap=True)
    result.add_column("calls", justify="right", no_wrap=True)
    result.add_column("rows in all", justify="right", no_wrap=True)
    for aux in rank.aux:
        if aux.count is None:
            shape = Text(f"none (last state {aux.hidden_width})", style="bold red")
        else:
            uniform = len(set(aux.widths)) == 1
            shape = Text(
                f"{aux.count} x {aux.widths[0]}" if uniform else " + ".join(map(str, aux.widths))
            )
            if aux.packed:
                shape.append(" packed", style="dim")
        name = aux.phase.removeprefix("target_")
        if aux.in_graph_capture:
            name += " (graph capture)"
        result.add_row(
            name,
            shape,
            aux.dtype.removeprefix("torch."),
            aux.capture_hidden_mode,
            str(aux.calls),
            str(aux.rows_total),
        )
    return result


def fc_table(rank: RankEvidence) -> Table:
    """``fc`` per kind of draft forward: taken or bypassed, and whether that is right."""
    result = table()
    result.add_column("draft forward", no_wrap=True)
    result.add_column("width in", justify="right", no_wrap=True)
    result.add_column("fc", no_wrap=True)
    result.add_column("", no_wrap=True)
    result.add_column("calls", justify="right", no_wrap=True)
    result.add_column("rows in all", justify="right", no_wrap=True)
    for draft in rank.drafts:
        right = fc_is_right(draft)
        mark = Text("-") if right is None else Text("right", style="green")
        if right is False:
            mark = Text("WRONG", style="bold red")
        shape = f" {draft.fc_in_features} -> {draft.fc_out_features}" if draft.fc == "taken" else ""
        name = draft.phase + (" (graph capture)" if draft.in_graph_capture else "")
        result.add_row(
            name,
            str(draft.width_in),
            draft.fc + shape,
            mark,
            str(draft.calls),
            str(draft.rows_total),
        )
    return result
