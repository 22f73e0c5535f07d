"""E3P631: speculation is slower than decoding without it."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.economics import BatchEconomics
from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen
from sglang_eagle3_probe.rules.earlier_errors import errors, repair_first
from sglang_eagle3_probe.rules.evidence import Evidence

LEAST_ROUNDS = 100

PAGE = Page(
    checks="Whether the accept length is surely (upper end of its 95 % interval) under the "
    "break-even length of a batch size: what a round costs in plain decode steps.",
    why="A round verifies, drafts and extends. When that takes longer than as many plain steps as "
    "it yields tokens, the server is slower than without a draft.",
    evidence="`phase_times` against its `decode` phase, or against `report --plain`; without phase "
    "times the spacing of verify rounds against `--plain TOKENS_PER_S`.",
    fix="With findings about wiring: repair those; the accept length comes first. Else the largest "
    "part: fewer steps when drafting dominates, fewer draft tokens when verification does, a CUDA "
    "graph for the draft when the rest does.",
    ignore="At batch sizes that the deployment seldom reaches; SGLang can switch speculation off "
    "above a batch size.",
)


def _check(evidence: Evidence, earlier: Sequence[Result]) -> list[Result]:
    worth = evidence.understood.economics
    bad = [b for b in worth.batches if b.rounds >= LEAST_ROUNDS and _loses(b)]
    if not bad:
        return []
    worst = bad[0]
    return [
        RULE.finding(
            "warning",
            f"speculation is slower than plain decoding at batch size {worst.batch_size}: accept "
            f"length {worst.accept_length:.2f}, and a round costs {worst.break_even or 0.0:.2f} "
            f"plain steps ({worst.speed_up or 0.0:.2f} times the speed)",
            [row for batch in bad for row in _rows(batch, worth.plain_source)],
            repair_first(errors(earlier), _fix(worst)),
        )
    ]


def _loses(batch: BatchEconomics) -> bool:
    limit = batch.speed_up_interval
    return limit is not None and limit.high < 1 and (batch.speed_up or 0.0) < 1


def _rows(batch: BatchEconomics, source: str) -> list[Seen]:
    where = "phase_times" if batch.basis == "phases" else "spacing of verify_round"
    head = f"batch size {batch.batch_size}: "
    rows = [
        Seen(f"{head}round", f"{batch.round_ms:.2f} ms", where),
        Seen(f"{head}plain step", f"{batch.plain_ms or 0.0:.2f} ms", source),
    ]
    return rows + [
        Seen(f"{head}{part.name}", f"{part.steps or 0.0:.2f} plain steps ({part.share:.0%})", where)
        for part in batch.parts
    ]


def _fix(batch: BatchEconomics) -> str:
    best = batch.best
    if best is not None and best.status == "shorter":
        return (
            f"try --speculative-num-steps {best.steps} (reckoned at {best.speed_up or 0.0:.2f} "
            "times plain decoding), or raise the accept length: see the causes of refusal"
        )
    return "raise the accept length (see the causes of refusal), or serve without a draft"


RULE = Rule("E3P631", "speculation does not pay", PAGE, _check)
