"""The report as JSON. Keys are stable; new ones may be added. Same trace, same bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_eagle3_probe.analysis.acceptance import INTERVAL_OVER, Acceptance, Rate
from sglang_eagle3_probe.analysis.rank_values import SiteComparison
from sglang_eagle3_probe.analysis.slot_values import Shares, SiteValues
from sglang_eagle3_probe.report import json_understanding
from sglang_eagle3_probe.report.json_understanding import interval as _interval
from sglang_eagle3_probe.report.verdict import Report, sentence
from sglang_eagle3_probe.rules.evidence import RankEvidence

SCHEMA = "sglang-eagle3-probe-report/1"


def as_dict(report: Report) -> dict[str, Any]:
    """Plain dicts and lists, as docs/report.schema.json describes them."""
    evidence = report.evidence
    return {
        "schema": SCHEMA,
        "path": str(evidence.path),
        "verdict": report.level,
        "sentence": sentence(report),
        "exit_code": report.exit_code,
        "findings": [msgspec.to_builtins(f) for f in report.findings],
        "unknown": [msgspec.to_builtins(u) for u in report.unknown],
        "acceptance": {**acceptance(evidence.acceptance), "from": evidence.rounds_from},
        **json_understanding.as_dict(evidence.understood),
        "ranks": [_rank(rank) for rank in evidence.ranks],
        "rank_comparisons": [comparison(c) for c in evidence.rank_comparisons],
        "older_runs": evidence.older_runs,
    }


def as_text(report: Report) -> str:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(as_dict(report), enc_hook=str)).decode()


def acceptance(seen: Acceptance) -> dict[str, Any]:
    """Acceptance with its intervals."""
    return {
        "rounds": seen.rounds,
        "requests": seen.requests,
        "accept_length": seen.accept_length,
        "accept_length_interval": _interval(seen.accept_length_interval),
        "interval_over": INTERVAL_OVER,
        "accept_rate": seen.accept_rate,
        "correct_drafts": seen.correct_drafts,
        "proposed_positions": seen.proposed_positions,
        "unconditional": [_rate(rate) for rate in seen.unconditional],
        "conditional": [_rate(rate) for rate in seen.conditional],
        "histogram": list(seen.histogram),
        "steps": {str(steps): rounds for steps, rounds in seen.steps.items()},
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "position": rate.position,
        "hits": rate.hits,
        "seen": rate.seen,
        "share": rate.share,
        "interval": _interval(rate.interval) if rate.seen else None,
    }


def site(values: SiteValues) -> dict[str, Any]:
    """One tapped place, its windows pooled. Times are seconds since the epoch."""
    return {
        "site": values.site,
        "tapped": values.tapped,
        "windows": values.windows,
        "rows": values.rows,
        "ticks": values.ticks,
        "lost_ticks": values.lost_ticks,
        "padded_rows_dropped": values.padded_rows_dropped,
        "unjoined_windows": values.unjoined_windows,
        "found_in_target": _shares(values.found),
        "same_slots": [
            {"slots": list(pair), "rows": rows} for pair, rows in values.same_slots.items()
        ],
        "slots": [_slot(values, place) for place in range(len(values.slots))],
        "recent": [
            {"wall_s": p.wall_s, "rows": p.rows, "rms": list(p.rms), "nonfinite": list(p.nonfinite)}
            for p in values.recent
        ],
    }


def _slot(values: SiteValues, place: int) -> dict[str, Any]:
    slot = values.slots[place]
    return {
        "slot": place,
        "boundary": values.boundary(place),
        "rows": slot.rows,
        "rms_mean": slot.rms_mean,
        "rms_min": slot.rms_min,
        "rms_max": slot.rms_max,
        "mean": slot.mean,
        "absmax": slot.absmax,
        "nonfinite": slot.nonfinite,
        "equals_embedding": _shares(slot.embedding),
        "drifted_windows": slot.drift.windows,
    }


def _shares(seen: Shares) -> dict[str, int] | None:
    return {"hits": seen.hits, "rows": seen.rows} if seen.rows else None


def comparison(compared: SiteComparison) -> dict[str, Any]:
    """One site over ranks."""
    return {
        "site": compared.site,
        "ranks": list(compared.ranks),
        "ticks": compared.ticks,
        "equal": compared.equal,
        "differing": list(compared.differing[:100]),
        "comparable": bool(compared.ticks) and not compared.shifted,
    }


def _rank(rank: RankEvidence) -> dict[str, Any]:
    records = {
        "header": rank.header,
        "arguments": rank.arguments,
        "layer_ids": rank.layer_ids,
        "aux_states": rank.aux,
        "target_extends": rank.target_extends,
        "draft_forwards": rank.drafts,
        "vocab_map": rank.vocab_map,
        "weights": rank.weights,
        "static_findings": rank.static_findings,
        "stats_coverage": rank.stats_coverage,
        "seams": rank.seams,
        "cost": rank.cost,
        "captures": rank.captures,
        "losses": rank.losses,
        "problems": rank.problems,
    }
    return {
        "label": rank.label,
        "files": [path.name for path in rank.files],
        "ended_in_order": rank.ended_in_order,
        "rounds": rank.rounds.total,
        "values": [site(values) for values in rank.values.values()],
        **{name: msgspec.to_builtins(value) for name, value in records.items()},
    }
