"""Made-up traffic: requests with starts and ends, refusals with causes, phase times."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from unit.trace import samples

from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTime,
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
    VerifyRound,
)
from sglang_eagle3_probe.trace.record_base import Record

RANKS = {"ranked_2": 2, "ranked_3_4": 4, "ranked_5_8": 7, "ranked_more": 31}


def verify(correct: list[int], **changes: Any) -> VerifyRound:
    """One record; ``steps`` 3, one request per entry."""
    steps = changes.get("steps", 3)
    values: dict[str, Any] = {
        "steps": steps,
        "topk": 1,
        "proposed_drafts": steps,
        "rids": [f"{i:012x}" for i in range(len(correct))],
        "rounds": [0] * len(correct),
        "context_lens": [100] * len(correct),
        "correct_drafts": correct,
    }
    return VerifyRound(**{**values, **changes})


def start(rid: str, **changes: Any) -> RequestStart:
    values: dict[str, Any] = {
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "chunked_prefill": False,
        "temperature": 0.0,
        "greedy": True,
        "grammar": False,
    }
    return RequestStart(rid=rid, **{**values, **changes})


def end(rid: str, rounds: int, **changes: Any) -> RequestEnd:
    values: dict[str, Any] = {
        "reason": "length",
        "output_tokens": 3 * rounds,
        "correct_drafts": 2 * rounds,
        "histogram": None,
    }
    return RequestEnd(rid=rid, verify_rounds=rounds, **{**values, **changes})


def refusals(*rows: tuple[str, int, int, int | None, bool | None]) -> Refusals:
    """(rid, round, position, rank, target_argmax_matches) each."""
    return unexpanded(*((*row, False) for row in rows))


def unexpanded(*rows: tuple[str, int, int, int | None, bool | None, bool]) -> Refusals:
    """The same, and whether the draft was not run on the last right draft."""
    columns = list(zip(*rows, strict=True)) or [()] * 6
    return Refusals(
        rids=list(columns[0]),
        rounds=list(columns[1]),
        positions=list(columns[2]),
        ranks=list(columns[3]),
        target_argmax_matches=list(columns[4]),
        unexpanded=list(columns[5]),
    )


def phase_times(batch_size: int = 1, count: int = 100, **changes: Any) -> PhaseTimes:
    """Milliseconds by phase in ``ms``; mean, median, least and greatest are the same."""
    ms: dict[Any, float] = changes.pop("ms", {"verify": 10.0, "draft": 4.0, "draft_extend": 2.0})
    values: dict[str, Any] = {"clock": "device", "steps": 3, "topk": 1, "draft_tokens": 4}
    phases = [
        PhaseTime(
            phase=phase,
            batch_size=batch_size,
            count=count,
            mean_ms=time,
            least_ms=time,
            median_ms=time,
            greatest_ms=time,
        )
        for phase, time in ms.items()
    ]
    return PhaseTimes(phases=phases, **{**values, **changes})


@dataclass
class Traffic:
    """Records of one process, and what is true of them."""

    records: list[Record] = field(default_factory=list)
    causes: Counter[tuple[int, str]] = field(default_factory=Counter)
    """(position, cause) -> rounds."""


def served(
    requests: int = 12,
    rounds: int = 60,
    chances: tuple[float, ...] = (0.76, 0.74, 0.72),
    *,
    seed: int = 3,
    topk: int = 1,
    batch: int = 1,
    gap_ms: float = 20.0,
    lag: int = 5,
    causes: tuple[str, ...] = (),
    context: int = 100,
    **first_record: Any,
) -> Traffic:
    """Requests in batches of ``batch``, one after the other.

    causes: drawn from for each refusal; each is written as the records would tell it (in a tree,
    only ranks beyond topk make sense). lag: rounds
    until a ``refusals`` record follows its round. first_record: changes to every request's start.
    """
    source, made = random.Random(seed), Traffic()
    clock_s, waiting = 1000.0, []
    for first in range(0, requests, batch):
        rids = [f"{seed:04x}{first + i:08x}" for i in range(batch)]
        made.records += [start(rid, **first_record) for rid in rids]
        for number in range(rounds):
            clock_s += gap_ms / 1000 if number else 1.0  # a prefill before the first
            correct = [_correct(source, chances) for _ in rids]
            told = [_draw(source, causes, len(chances), c) for c in correct]
            record = verify(
                correct,
                steps=len(chances),
                topk=topk,
                proposed_drafts=max(len(chances), 2 * topk - 1),
                rids=rids,
                rounds=[number] * batch,
                context_lens=[context + 3 * number] * batch,
                out_of_vocab=[cause == "out_of_vocab" for cause in told],
                greedy=[cause != "sampling" for cause in told],
                monotonic_s=clock_s,
            )
            made.records.append(record)
            waiting.append(_refusals(record, told, topk))
            for c, cause in zip(correct, told, strict=True):
                if cause:
                    made.causes[c, cause] += 1
            if len(waiting) > lag:
                made.records.append(waiting.pop(0))
        made.records += waiting
        waiting.clear()
        made.records += [end(rid, rounds) for rid in rids]
    if not causes:
        made.records = [r for r in made.records if not isinstance(r, Refusals)]
    return made


def _correct(source: random.Random, chances: tuple[float, ...]) -> int:
    correct = 0
    while correct < len(chances) and source.random() < chances[correct]:
        correct += 1
    return correct


def _draw(source: random.Random, causes: tuple[str, ...], steps: int, correct: int) -> str:
    if correct >= steps:
        return ""
    return source.choice(causes) if causes else "unknown"


def _refusals(record: VerifyRound, told: list[str], topk: int) -> Refusals:
    return unexpanded(
        *(
            (
                record.rids[i],
                record.rounds[i],
                record.correct_drafts[i],
                {"pruned": topk, **RANKS}.get(cause),
                cause == "sampling",
                cause == "unexpanded",
            )
            for i, cause in enumerate(told)
            if cause and cause != "unknown"
        )
    )


def clean_with(traffic: list[Record]) -> list[Record]:
    """``samples.clean`` with this traffic instead of its own."""
    return [*samples.clean(0), *traffic]
