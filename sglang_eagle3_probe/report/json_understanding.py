"""Causes, slices, prediction, economics and references as JSON; part of the report."""

from __future__ import annotations

from typing import Any

from sglang_eagle3_probe.analysis.anatomy import Anatomy, CauseShare
from sglang_eagle3_probe.analysis.economics import BatchEconomics, Economics, Option
from sglang_eagle3_probe.analysis.intervals import Interval
from sglang_eagle3_probe.analysis.prediction import Comparison, Gap
from sglang_eagle3_probe.analysis.reference_bank import Found
from sglang_eagle3_probe.analysis.slices import Slices
from sglang_eagle3_probe.analysis.timeline import Moment
from sglang_eagle3_probe.analysis.understanding import Understanding


def as_dict(known: Understanding) -> dict[str, Any]:
    """The keys that go into the report's object."""
    return {
        "setting": _setting(known.setting),
        "refusals": _anatomy(known.anatomy),
        "timeline": [_moment(moment) for moment in known.timeline],
        "slices": {slices.name: _slices(slices) for slices in known.slices},
        "prediction": _comparison(known.comparison) if known.comparison is not None else None,
        "economics": _economics(known.economics),
        "references": _references(known.references) if known.references is not None else None,
    }


def interval(found: Interval | None) -> list[float] | None:
    """``[low, high]``."""
    return None if found is None else [found.low, found.high]


def _setting(setting: tuple[int, int, int] | None) -> dict[str, int] | None:
    if setting is None:
        return None
    steps, topk, draft_tokens = setting
    return {"steps": steps, "topk": topk, "draft_tokens": draft_tokens, "ceiling": steps + 1}


def _anatomy(parts: Anatomy) -> dict[str, Any]:
    return {
        "rounds": parts.rounds,
        "rounds_not_looked_at": parts.not_looked_at,
        "refused": parts.refused,
        "explained": parts.explained,
        "joined": parts.joined,
        "unjoined": parts.unjoined,
        "first_choice_refused": parts.contradictions,
        "total": [_cause(share) for share in parts.total],
        "positions": [
            {
                "position": position,
                "reached": shares[0].reached if shares else 0,
                "refused": shares[0].refused if shares else 0,
                "causes": [_cause(share) for share in shares],
            }
            for position, shares in enumerate(parts.positions)
        ],
    }


def _cause(share: CauseShare) -> dict[str, Any]:
    return {
        "cause": share.cause,
        "count": share.count,
        "share_of_refusals": share.share,
        "share_of_refusals_interval": interval(share.interval),
        "share_of_rounds": share.lost,
        "share_of_rounds_interval": interval(share.lost_interval),
    }


def _slices(slices: Slices) -> list[dict[str, Any]]:
    return [
        {
            "label": piece.label,
            "rounds": piece.acceptance.rounds,
            "accept_length": piece.acceptance.accept_length,
            "accept_length_interval": interval(piece.acceptance.accept_length_interval),
            "unconditional": [rate.share for rate in piece.acceptance.unconditional],
            "conditional": [rate.share for rate in piece.acceptance.conditional],
        }
        for piece in slices.slices
    ]


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "start_s": moment.start_s,
        "width_s": moment.width_s,
        "rounds": moment.rounds,
        "accept_length": moment.accept_length,
        "accept_length_interval": interval(moment.interval),
    }


def _comparison(compared: Comparison) -> dict[str, Any]:
    given = compared.prediction
    product, survival = given.by_product, given.by_survival
    return {
        "source": given.source,
        "positions": given.positions,
        "compared_by": given.expected.reading,
        "by_product": list(product.unconditional) if product is not None else None,
        "by_survival": list(survival.unconditional) if survival is not None else None,
        "steps": compared.steps,
        "predicted_length": compared.predicted_length,
        "predicted_length_by_product": product.length(compared.steps) if product else None,
        "predicted_length_by_survival": survival.length(compared.steps) if survival else None,
        "measured_length": compared.measured_length,
        "greedy_rounds_only": compared.greedy_only,
        "sampling_share": compared.sampling_share,
        "measured_on_trees": compared.tree,
        "pattern": compared.pattern,
        "suggests": compared.suggests,
        "unconditional": [_gap(gap) for gap in compared.unconditional],
        "conditional": [_gap(gap) for gap in compared.conditional],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "position": gap.position,
        "predicted": gap.predicted,
        "measured": gap.measured.share,
        "rounds": gap.measured.seen,
        "gap": gap.gap,
        "interval": interval(gap.interval),
    }


def _economics(worth: Economics) -> dict[str, Any]:
    return {
        "clock": worth.clock,
        "overlapped": worth.overlapped,
        "not_timed": worth.not_timed,
        "plain_source": worth.plain_source,
        "prefill_ms": {str(size): ms for size, ms in worth.extend_ms.items()},
        "batches": [_batch(batch) for batch in worth.batches],
    }


def _batch(batch: BatchEconomics) -> dict[str, Any]:
    return {
        "batch_size": batch.batch_size,
        "setting": _setting(batch.setting),
        "basis": batch.basis,
        "rounds": batch.rounds,
        "accept_length": batch.accept_length,
        "round_ms": batch.round_ms,
        "draft_step_ms": batch.draft_step_ms,
        "parts": [
            {"name": p.name, "ms": p.ms, "share": p.share, "plain_steps": p.steps}
            for p in batch.parts
        ],
        "tokens_per_s": batch.tokens_per_s,
        "plain_ms": batch.plain_ms,
        "plain_tokens_per_s": batch.plain_tokens_per_s,
        "break_even": batch.break_even,
        "least_break_even": batch.least_break_even,
        "speed_up": batch.speed_up,
        "speed_up_interval": interval(batch.speed_up_interval),
        "predicted_speed_up": batch.predicted_speed_up,
        "options": [_option(option) for option in batch.options],
        "best": _option(batch.best) if batch.best is not None else None,
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "steps": option.steps,
        "topk": option.topk,
        "draft_tokens": option.draft_tokens,
        "accept_length": option.accept_length,
        "round_ms": option.round_ms,
        "tokens_per_s": option.tokens_per_s,
        "speed_up": option.speed_up,
        "status": option.status,
    }


def _references(found: Found) -> dict[str, Any]:
    return {
        "setting": found.setting,
        "matched_by": found.how,
        "published": [
            {
                "target": r.target,
                "draft": r.draft,
                "engine": r.engine,
                "benchmark": r.benchmark,
                "batch_size": r.batch_size,
                "temperature": r.temperature,
                "accept_length": r.accept_length,
                "ceiling": r.ceiling,
                "of_ceiling": r.of_ceiling,
                "source": r.source,
            }
            for r in found.references
        ],
    }
