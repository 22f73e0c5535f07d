"""E3P403: the draft's own embedding was dropped."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Whether the checkpoint carries an embedding that SGLang replaced by the target's.",
    why="For EAGLE-3, SGLang shares the target's embedding unless the config gives a "
    "target_hidden_size that differs from the draft's width. A draft that trained its own "
    "embedding loses it.",
    evidence="`weights.own_embed_dropped`, `.embed_source`.",
    fix="Train with the target's embedding frozen, or serve with an engine that keeps the draft's "
    "own.",
    ignore="When the checkpoint's embedding is a copy of the target's, as most trainers write it.",
)


def _check(rank: RankEvidence) -> list[Result]:
    weights = rank.weights
    if weights is None or not weights.own_embed_dropped:
        return []
    return [
        RULE.finding(
            "warning",
            "the draft's checkpoint has its own embedding, and SGLang put the target's in its "
            "place",
            [
                Seen("embedding in force", weights.embed_source, "weights.embed_source"),
                Seen("own embedding dropped", True, "weights.own_embed_dropped"),
            ],
            "nothing to do if it is a copy of the target's; if it was trained, train again with "
            "the embedding frozen",
        )
    ]


RULE = Rule("E3P403", "own embedding dropped", PAGE, per_rank(_check))
