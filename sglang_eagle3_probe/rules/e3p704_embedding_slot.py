"""E3P704: the slot for the embedding is not the embedding, or another slot is."""

from __future__ import annotations

from sglang_eagle3_probe.analysis.slot_values import SiteValues, SlotValues
from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.rules.row_shares import ENOUGH_ROWS, judge_shares, share_text

PAGE = Page(
    checks="Rows of the slot at boundary h 0 (output id -1) against the target's embedding output "
    "of the same forwards, bit for bit; and that no slot at another boundary equals it.",
    why="The embedding output is the one boundary whose value is known without running the model, "
    "so this proves that the capture takes what its id says. A slot at boundary 0 that differs was "
    "overwritten: many classes add each layer's output to the residual in place. A slot that "
    "equals the embedding under another id is captured at the wrong place.",
    evidence="`slot_stats.slots[].equals_embedding` with `boundaries`. The first and last forward "
    "of a window may be cut off, so windows are pooled by rows, two forwards of each are excused, "
    "and more than 5 % of the rest must miss.",
    fix="Update SGLang, or clone the tensor where the model class captures it. With the patch "
    "`embedding_capture` of this probe, report it with the model class.",
    ignore="When the draft was trained on such states, which no known trainer does.",
)

_DECIDE = "serve more requests, at least a few hundred rounds at level stats"


def _at_embedding(values: SiteValues, number: int, slot: SlotValues) -> list[Result]:
    verdict = judge_shares(slot.embedding)
    told = share_text(slot.embedding)
    name = f"{values.site} {values.name(number)}"
    if verdict == "too_few":
        return [
            RULE.unknown(
                f"{name} should be the embedding and equals it in {told}; too few to tell a fault "
                "from windows cut at their edges",
                _DECIDE,
            )
        ]
    if verdict not in ("broken", "doubtful"):
        return []
    return [
        RULE.finding(
            "error" if verdict == "broken" else "warning",
            f"{name} should be the embedding, and equals it in only {told}: what is captured there "
            "was overwritten or comes from elsewhere",
            [
                Seen("rows equal to an embedding output", told, "slot_stats.slots[]"),
                Seen("rows missed beyond window edges", round(slot.embedding.beyond), "pooled"),
                Seen("RMS, mean of rows", round(slot.rms_mean, 6), "slot_stats.slots[]"),
            ],
            "update SGLang, or clone the tensor where the model class captures it; with the patch "
            "embedding_capture, report this with the model class",
        )
    ]


def _elsewhere(values: SiteValues, number: int, slot: SlotValues) -> list[Result]:
    seen = slot.embedding
    if not seen.hits:
        return []
    sure = seen.hits * 2 > seen.rows
    return [
        RULE.finding(
            "error" if sure else "warning",
            f"{values.site} {values.name(number)} equals the embedding in {share_text(seen)}, "
            "although its boundary is not 0: the layer meant is not captured",
            [
                Seen("rows equal to an embedding output", share_text(seen), "slot_stats.slots[]"),
                Seen("boundaries h", values.boundaries, "slot_stats.boundaries"),
            ],
            "look at how the list of layer ids was read (wiring table); if it is right, the model "
            "class captures at the wrong place: update SGLang, or report it with the model class",
        )
    ]


def _check(rank: RankEvidence) -> list[Result]:
    results: list[Result] = []
    not_compared: list[str] = []
    compared = False
    for values in rank.values.values():
        for number, slot in enumerate(values.slots):
            boundary = values.boundary(number)
            if boundary is None or slot.dead:
                continue
            if boundary:
                results += _elsewhere(values, number, slot)
            elif slot.embedding.rows:
                compared = True
                results += _at_embedding(values, number, slot)
            elif values.site.startswith("aux_") and slot.rows >= ENOUGH_ROWS:
                not_compared.append(values.site)
    if not_compared and not compared:
        results.append(
            RULE.unknown(
                "a slot should be the embedding, and no embedding output was tapped to compare "
                f"with ({', '.join(not_compared)})",
                "serve a few more requests; if it stays so, see the forward kinds not tapped "
                "(E3P906)",
            )
        )
    return results


RULE = Rule("E3P704", "embedding slot is not the embedding", PAGE, per_rank(_check))
