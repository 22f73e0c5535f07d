"""One line of words per wiring record, for ``tail``."""

from __future__ import annotations

from sglang_eagle3_probe.report.facts import (
    fc_is_right,
    files_line,
    map_line,
    seams_line,
    weights_line,
)
from sglang_eagle3_probe.trace.records import (
    AnyRecord,
    Arguments,
    AuxStates,
    DraftForward,
    Fault,
    Footer,
    Header,
    LayerIds,
    Seams,
    SlotStats,
    StatsCoverage,
    TargetExtend,
    VocabMap,
    Weights,
)
from sglang_eagle3_probe.trace.static_records import StaticFindings


def describe(record: AnyRecord) -> list[str]:
    """What to print about a record; nothing for those without news."""
    if isinstance(record, Header):
        return [f"started: SGLang {record.sglang_version}, probe {record.probe_version}"]
    if isinstance(record, Seams):
        failed = [f"seam {s.name} FAILED: {s.why}" for s in record.seams if s.state == "failed"]
        return [f"seams: {seams_line(record)}", *failed]
    if isinstance(record, Arguments):
        algorithm = record.in_force.get("speculative_algorithm")
        draft = record.draft_architecture or "no draft"
        return [f"{record.target_architecture} + {draft}, algorithm {algorithm}"]
    if isinstance(record, LayerIds):
        ids = [slot.output_id for slot in record.slots]
        boundaries = [slot.boundary for slot in record.slots]
        line = f"captures output ids o {ids} (boundaries h {boundaries})"
        trained = record.trained_output_ids
        if trained is not None:
            line += ", as trained" if trained == ids else f", BUT TRAINED ON {trained}"
        return [line]
    if isinstance(record, AuxStates):
        states = "NONE" if record.count is None else f"{record.count} of widths {record.widths}"
        return [f"aux states in {record.phase}: {states} ({record.calls} calls)"]
    if isinstance(record, TargetExtend):
        return [f"target extend hands on {record.handed_hidden_states_shape}"]
    if isinstance(record, DraftForward):
        mark = {True: "right", False: "WRONG", None: "no fc in this draft"}[fc_is_right(record)]
        return [
            f"draft {record.phase}: width {record.width_in} in, fc {record.fc} ({mark}; "
            f"{record.calls} calls)"
        ]
    if isinstance(record, VocabMap):
        return [f"vocabulary map: {map_line(record)}"]
    if isinstance(record, Weights):
        return [f"draft weights: {weights_line(record)}"]
    if isinstance(record, StaticFindings):
        return _static(record)
    if isinstance(record, SlotStats):
        return _nonfinite(record)
    if isinstance(record, StatsCoverage):
        return [
            f"values NOT measured at {site}: "
            + ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
            for site, reasons in record.skipped.items()
            if reasons
        ]
    if isinstance(record, Fault):
        off = "; switched off" if record.disabled else ""
        return [f"probe fault in {record.site}: {record.error}{off} (the server is not affected)"]
    if isinstance(record, Footer):
        return [f"ended: {record.reason}, {record.records_written} records"]
    return []


def _static(record: StaticFindings) -> list[str]:
    """One line about the files, and one for each fault in them."""
    serious = [f for f in record.findings if f.severity != "note"]
    lines = [f"{f.code} {f.severity}: {f.message}. Fix: {f.fix}" for f in serious]
    return [f"files of target and draft: {files_line(record)}", *lines]


def _nonfinite(record: SlotStats) -> list[str]:
    """Nothing for an ordinary window."""
    lines = []
    for place, slot in enumerate(record.slots):
        if slot.nonfinite:
            h = record.boundaries[place] if place < len(record.boundaries) else None
            where = f"slot {place}" + ("" if h is None else f" (boundary h {h})")
            padded = "" if record.joined or record.tapped == "eager" else ", perhaps in padded rows"
            lines.append(
                f"NON-FINITE VALUES at {record.site} {where}: {slot.nonfinite} in {record.rows} "
                f"rows{padded}"
            )
    return lines
