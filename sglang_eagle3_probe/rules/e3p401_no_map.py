"""E3P401: a reduced draft head without a vocabulary map."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Whether a draft head with fewer rows than the target's vocabulary has its "
    "hot_token_id map in force.",
    why="Without the map draft ids are used as target ids. Every proposal then names another token "
    "than the draft meant, and SGLang says nothing.",
    evidence="`vocab_map.present`, `.in_force`, `.head_rows`, `.target_vocab_size`.",
    fix="Put `d2t` (offsets: target id - draft id, int64) into the draft's checkpoint and start "
    "with --speculative-algorithm EAGLE3, the only algorithm that reads it.",
    ignore="When the draft's vocabulary is the first ids of the target's, in order.",
)


def _check(rank: RankEvidence) -> list[Result]:
    found, rows, whole = rank.vocab_map, rank.head_rows, rank.target_vocab_size
    if found is None or found.in_force or rows is None or whole is None or rows >= whole:
        return []
    reason = (
        f"the checkpoint has d2t, but {rank.algorithm or 'the worker'} does not use it"
        if found.present
        else "the checkpoint has no d2t"
    )
    fix = (
        "start the server with --speculative-algorithm EAGLE3"
        if found.present
        else "add d2t (target id - draft id, int64, one entry per head row) to the checkpoint"
    )
    return [
        RULE.finding(
            "error",
            f"the draft's head has {rows} rows for {whole} target tokens and no map between them "
            f"is in force ({reason}): draft ids are used as target ids",
            [
                Seen("head rows", rows, "vocab_map.head_rows"),
                Seen("target vocabulary", whole, "vocab_map.target_vocab_size"),
                Seen("map in the checkpoint", found.present, "vocab_map.present"),
                Seen("algorithm in force", rank.algorithm, "arguments.in_force"),
            ],
            fix,
        )
    ]


RULE = Rule("E3P401", "reduced head without a map", PAGE, per_rank(_check))
