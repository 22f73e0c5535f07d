"""A capture compared with training states, as text and as JSON."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from sglang_eagle3_probe.offline.comparing.comparison import Comparison
from sglang_eagle3_probe.offline.comparing.findings import Finding
from sglang_eagle3_probe.offline.comparing.measures import Spread
from sglang_eagle3_probe.offline.comparing.naming import Named
from sglang_eagle3_probe.offline.comparing.pairs import Alignment
from sglang_eagle3_probe.report.lines import Line, blank, clean, fields, table, wrapped

SCHEMA = "sglang-eagle3-probe-compare/1"
SHOWN = 5
ANSWERS = {
    "alike": "the served states are those of training, in every slot",
    "different": "the served states are not those of training",
    "undecided": "the states differ, and why is undecided",
}


def as_lines(found: Comparison, width: int) -> list[Line]:
    """For people."""
    style = "bold green" if found.answer == "alike" else "bold red"
    lines = wrapped("", f"{ANSWERS[found.answer]}.", width, style=style)
    lines.append(blank())
    lines += _aligned(found, width)
    if found.slots:
        lines.append(blank())
        lines += table(
            ["slot", "served h (o)", "trained h", "relative error", "cosine", "norm s/t", "name"],
            [_row(found, slot) for slot in found.slots],
        )
        lines += wrapped(
            "",
            "Per token: median (10th to 90th percentile). The error is relative to the trained "
            "row; h is a boundary, o = h - 1 an output id.",
            width,
            style="dim",
        )
    for number, finding in enumerate(found.findings, 1):
        lines.append(blank())
        lines += _finding(finding, number, width)
    if found.notes:
        lines.append(blank())
        for note in found.notes:
            lines += wrapped("mind: ", note, width)
    return lines


def _aligned(found: Comparison, width: int) -> list[Line]:
    info = found.pairs.info
    rows = [
        ("served", f"boundaries {info.boundaries} of {info.target_class or 'an unknown target'}"),
    ]
    for alignment in found.alignments[:SHOWN]:
        rows.append(("trained", f"{alignment.sample}: {alignment.producer} ({alignment.why})"))
        rows.append(("", _tokens(alignment)))
    left = len(found.alignments) - SHOWN
    if left > 0:
        rows.append(("", f"and {left} more"))
    return fields(rows, width)


def _tokens(alignment: Alignment) -> str:
    where = (
        "from the first token on"
        if alignment.same_beginning
        else f"from position {alignment.first_position} and id {alignment.first_id} on"
    )
    text = f"{alignment.tokens} equal token ids {where}, {alignment.rows} compared"
    if alignment.row_shift:
        text += f", rows shifted by {alignment.row_shift:+d}"
    return text


def _row(found: Comparison, slot: Named) -> list[str]:
    trained = found.trained_boundaries[slot.slot]
    return [
        str(slot.slot),
        f"{slot.boundary} ({slot.boundary - 1})",
        "?" if trained is None else str(trained),
        _spread(slot.error),
        f"{slot.cosine.median:.4f}",
        f"{slot.norm_ratio.median:.3g}",
        slot.name,
    ]


def _spread(value: Spread) -> str:
    return f"{value.median:.2g} ({value.low:.2g} to {value.high:.2g})"


def _finding(finding: Finding, number: int, width: int) -> list[Line]:
    lines = wrapped(f"{number}. ", finding.title, width, style="bold")
    for head, text in (
        ("   seen: ", finding.evidence),
        ("   means: ", finding.meaning),
        ("   Fix: ", finding.fix),
    ):
        lines += wrapped(head, text, width, "dim")
    return lines


def as_json(found: Comparison) -> str:
    """Indented JSON; numbers that are not finite are null."""
    info = found.pairs.info
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "answer": found.answer,
        "served_boundaries": list(info.boundaries),
        "trained_boundaries": list(found.trained_boundaries),
        "trained_boundaries_claimed": _listed(found.pairs.claimed),
        "tokens_compared": len(found.pairs.token_ids),
        "alignments": [
            {
                "request": clean(a.request),
                "sample": clean(a.sample),
                "producer": clean(a.producer),
                "why": clean(a.why),
                "equal_token_ids": a.tokens,
                "tokens_compared": a.rows,
                "first_position": a.first_position,
                "first_id": a.first_id,
                "same_beginning": a.same_beginning,
                "row_shift": a.row_shift,
            }
            for a in found.alignments
        ],
        "slots": [_slot(slot) for slot in found.slots],
        "findings": [
            {
                "name": f.name,
                "title": f.title,
                "slots": list(f.slots),
                "evidence": clean(f.evidence),
                "meaning": f.meaning,
                "fix": f.fix,
            }
            for f in found.findings
        ],
        "notes": [clean(note) for note in found.notes],
        "exit_code": found.exit_code,
    }
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def _slot(slot: Named) -> dict[str, Any]:
    return {
        "slot": slot.slot,
        "name": slot.name,
        "side": None if slot.name == "alike" else slot.side,
        "served_boundary": slot.boundary,
        "served_boundary_by_values": slot.served_boundary,
        "trained_boundary_by_values": slot.trained_boundary,
        "other": None if slot.other < 0 else slot.other,
        "relative_error": _spread_json(slot.error),
        "cosine": _spread_json(slot.cosine),
        "norm_ratio": _spread_json(slot.norm_ratio),
        "error_left": _number(slot.explained),
        "error_of_next_best": _number(slot.second),
        "error_prompt": _number(slot.prompt_error),
        "error_verify_rounds": _number(slot.decoded_error),
        "outliers": slot.outliers,
        "nearest_served": [
            {"kind": kind, "index": None if index < 0 else index, "relative_error": _number(error)}
            for kind, index, error in slot.best
        ],
    }


def _spread_json(value: Spread) -> dict[str, float | None]:
    return {
        "median": _number(value.median),
        "p10": _number(value.low),
        "p90": _number(value.high),
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _listed(value: tuple[int, ...] | None) -> list[int] | None:
    return None if value is None else list(value)
