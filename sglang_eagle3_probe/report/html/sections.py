"""The sections under the verdict, in reading order: data, or what would bring it."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.report import facts
from sglang_eagle3_probe.report.html.acceptance_figures import anatomy_figure, curve_figure
from sglang_eagle3_probe.report.html.economics_figures import (
    batches_table,
    cost_figure,
    speed_figure,
)
from sglang_eagle3_probe.report.html.figure import Missing, Section, Table, words
from sglang_eagle3_probe.report.html.slice_figures import reference_figure, slice_figure
from sglang_eagle3_probe.report.html.time_figures import timeline_figure, values_multiples
from sglang_eagle3_probe.report.html.wiring_picture import wiring_figure
from sglang_eagle3_probe.report.values import proven_lines, rank_with_values, site_lines
from sglang_eagle3_probe.report.verdict import Report
from sglang_eagle3_probe.rules.evidence import RankEvidence

MOST_GROUPS = 4
"""Pictures of ranks that are wired differently; more would be a fault that E3P404 names."""


def sections(report: Report) -> list[Section]:
    """All of them, always: a reader must see what is not known, too."""
    return [
        *_wiring(report),
        _acceptance(report),
        _slices(report),
        _time(report),
        _values(report),
        _economics(report),
        _references(report),
    ]


def _wiring(report: Report) -> list[Section]:
    groups = facts.wiring_groups(report.evidence.models)
    if not groups:
        return [
            Section(
                "wiring",
                "Wiring",
                missing="The trace holds no process that runs the model. Take the directory that "
                "the server's scheduler processes wrote to.",
            )
        ]
    made = [_wiring_of(report, group, place) for place, group in enumerate(groups[:MOST_GROUPS])]
    if len(groups) > MOST_GROUPS:
        rest = f"{len(groups) - MOST_GROUPS} more groups of ranks are wired otherwise: --json."
        made.append(Section("wiring-more", "More wirings", missing=rest))
    return made


def _wiring_of(report: Report, group: list[RankEvidence], place: int) -> Section:
    rank = group[0]
    where = _some([member.label for member in group])
    name = "wiring" if not place else f"wiring-{place + 1}"
    pairs: list[tuple[str, str]] = []
    ids = rank.layer_ids
    if ids is not None:
        pairs += [("list", facts.how_read(ids)), (facts.stock_name(ids), facts.stock(ids))]
        if ids.trained_output_ids is not None:
            source = f" ({ids.trained_source})" if ids.trained_source else ""
            pairs.append(("trained on", f"output ids {ids.trained_output_ids}{source}"))
        pairs += [(f"slot {slot}", proof) for slot, proof in proven_lines(rank).items()]
        if ids.patches_applied:
            pairs.append(("patched by the probe", ", ".join(ids.patches_applied)))
        pairs += [(f"unread: {key}", str(found)) for key, found in ids.ignored_keys.items()]
    handed = facts.handed_line(rank)
    pairs += [("handed to the draft", handed)] if handed else []
    pairs += [
        ("vocabulary map", facts.map_line(rank.vocab_map)),
        ("draft weights", facts.weights_line(rank.weights)),
    ]
    tables = []
    if rank.aux:
        tables.append(("Aux hidden states at the target's logits processor", _aux(rank)))
    if rank.drafts:
        tables.append(("Draft forwards: fc taken or bypassed", _fc(rank)))
    return Section(
        name,
        f"Wiring ({where})",
        figures=[wiring_figure(name, rank, report)],
        pairs=pairs,
        tables=tables,
    )


def _aux(rank: RankEvidence) -> Table:
    rows = []
    for aux in rank.aux:
        if aux.count is None:
            shape = f"none (last state {aux.hidden_width})"
        elif len(set(aux.widths)) == 1:
            shape = f"{aux.count} \u00d7 {aux.widths[0]}"
        else:
            shape = " + ".join(map(str, aux.widths))
        phase = aux.phase.removeprefix("target_") + " (graph capture)" * aux.in_graph_capture
        dtype = aux.dtype.removeprefix("torch.")
        calls = (str(aux.calls), str(aux.rows_total))
        rows.append((phase, shape, dtype, aux.capture_hidden_mode, *calls))
    header = ("aux states in", "states \u00d7 width", "dtype", "mode", "calls", "rows in all")
    return Table(header, rows, words(0, 1, 2, 3))


def _fc(rank: RankEvidence) -> Table:
    rows = []
    for draft in rank.drafts:
        right = facts.fc_is_right(draft)
        shape = f" {draft.fc_in_features} \u2192 {draft.fc_out_features}" * (draft.fc == "taken")
        phase = draft.phase + " (graph capture)" * draft.in_graph_capture
        judged = "-" if right is None else "right" if right else "WRONG"
        calls = (str(draft.calls), str(draft.rows_total))
        rows.append((phase, str(draft.width_in), draft.fc + shape, judged, *calls))
    header = ("draft forward", "width in", "fc", "", "calls", "rows in all")
    return Table(header, rows, words(0, 2, 3))


def _acceptance(report: Report) -> Section:
    evidence = report.evidence
    seen, known = evidence.acceptance, evidence.understood
    level = next((r.header.level for r in evidence.models if r.header is not None), "")
    pairs: list[tuple[str, str]] = []
    if seen.rounds:
        shares = ", ".join(f"{c}: {n / seen.rounds:.0%}" for c, n in enumerate(seen.histogram))
        pairs.append(("rounds by correct drafts", shares))
        of = f"{seen.rounds} rounds of {seen.requests} requests"
        pairs.append(("counted", f"{of} on {_some(evidence.rounds_from)}"))
        if len(seen.steps) > 1:
            steps = ", ".join(f"{s} in {n} rounds" for s, n in seen.steps.items())
            pairs.append(("steps vary", steps))
        if evidence.rounds.not_counted:
            rows = f"{evidence.rounds.not_counted} rows of requests that had ended"
            pairs.append(("not counted", rows))
    return Section(
        "acceptance",
        "Acceptance",
        figures=[
            curve_figure("curve", seen, known.comparison),
            anatomy_figure("anatomy", known.anatomy, level=level),
        ],
        pairs=pairs,
    )


def _slices(report: Report) -> Section:
    known, whole = report.evidence.understood, report.evidence.acceptance
    several = [s for s in known.slices if len(s.slices) > 1]
    single = [
        (s.title, f"{s.slices[0].label} in all rounds that tell") for s in known.slices
        if len(s.slices) == 1
    ]  # fmt: skip
    missing = ""
    if not several:
        missing = (
            "Every circumstance had one value only. Traffic of several batch sizes, context "
            "lengths and temperatures shows where acceptance falls."
            if known.slices
            else "No verify round was recorded, so there is nothing to slice."
        )
    return Section(
        "slices",
        "Accept length by circumstance",
        figures=[slice_figure(s, whole) for s in several],
        pairs=single,
        missing=missing,
    )


def _time(report: Report) -> Section:
    evidence = report.evidence
    starts = [rank.header.wall_s for rank in evidence.models if rank.header is not None]
    return Section(
        "time",
        "Over time",
        figures=[
            timeline_figure(
                "timeline",
                evidence.understood.timeline,
                min(starts, default=None),
                evidence.acceptance.accept_length,
            )
        ],
    )


def _values(report: Report) -> Section:
    models = report.evidence.models
    rank = rank_with_values(models)
    made = values_multiples("values", rank)
    if isinstance(made, Missing):
        return Section("values", "Values of states", figures=[made])
    assert rank is not None
    others = sum(bool(member.values) for member in models) - 1
    level = rank.header.level if rank.header is not None else "stats"
    lead = f"Level {level}, {rank.label}" + (f"; {others} more ranks in --json." if others else ".")
    pairs = site_lines(rank, report.evidence)
    return Section("values", "Values of states", lead, pairs=pairs, multiples=[made])


def _economics(report: Report) -> Section:
    worth = report.evidence.understood.economics
    pairs = [
        (f"prefill at batch size {size}", f"{ms:.2f} ms") for size, ms in worth.extend_ms.items()
    ][:6]
    tables = [("By batch size", batches_table(worth))] if worth.batches else []
    return Section(
        "economics",
        "What it is worth",
        figures=[cost_figure("cost", worth), speed_figure("speed", worth)],
        pairs=pairs,
        tables=tables,
    )


def _references(report: Report) -> Section:
    known = report.evidence.understood
    setting = "/".join(map(str, known.setting)) if known.setting is not None else ""
    figure = reference_figure("references", known.references, report.evidence.acceptance, setting)
    return Section("reference-bank", "Reference bank", figures=[figure])


def _some(names: Sequence[str], most: int = 4) -> str:
    """``a, b and 6 more``."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
