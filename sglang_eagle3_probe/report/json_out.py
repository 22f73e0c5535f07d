"""The report as JSON. Keys are stable; new ones may be added. Same trace, same bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_eagle3_probe.analysis.acceptance import INTERVAL_OVER, Acceptance, Rate
from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.report.verdict import Report, sentence
from sglang_eagle3_probe.rules.evidence import RankEvidence

SCHEMA = "sglang-eagle3-probe-report/1"


def as_dict(report: Report) -> dict[str, Any]:
    """Plain dicts and lists, documented in docs/trace_format.md."""
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
        "ranks": [_rank(rank) for rank in evidence.ranks],
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


def _interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


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
        "seams": rank.seams,
        "losses": rank.losses,
        "problems": rank.problems,
    }
    return {
        "label": rank.label,
        "files": [path.name for path in rank.files],
        "ended_in_order": rank.ended_in_order,
        "rounds": rank.rounds.total,
        **{name: msgspec.to_builtins(value) for name, value in records.items()},
    }
