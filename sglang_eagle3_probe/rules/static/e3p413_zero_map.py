"""E3P413: a ``d2t`` of zeros.

It maps every draft id to itself: right for a full head or one that keeps the first tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, reduced

PAGE = Page(
    checks="A `d2t` of zeros on a reduced head, against `t2d`.",
    why="Zeros say that the draft keeps the first tokens of the vocabulary. They are also what a "
    "buffer holds that was never filled: then the map of training is lost.",
    evidence="Values of `d2t` and `t2d`.",
    fix="Export `d2t` from the trainer's vocabulary mapping: `d2t[i] = kept_id[i] - i`.",
    ignore="When the draft really keeps the first tokens.",
)


def is_zero(d2t: Sequence[int]) -> bool:
    return not any(d2t)


def _check(situation: Situation) -> list[Result]:
    d2t, kept = situation.draft.d2t, situation.draft.t2d_kept
    if not d2t or not is_zero(d2t) or not reduced(situation):
        return []
    evidence = [
        Seen("entries, all zero", len(d2t), "draft checkpoint: d2t"),
        Seen("target vocabulary", situation.target_vocab, "target vocab_size"),
    ]
    fix = "export `d2t` from the trainer's vocabulary mapping (`d2t[i] = kept_id[i] - i`)"
    if kept is None:
        return [
            RULE.unknown(
                f"`d2t` is all zeros on a head of {len(d2t)} rows: right only if the draft keeps "
                "the first tokens of the vocabulary",
                "the trainer's vocabulary mapping, or `t2d` in the checkpoint",
            )
        ]
    if kept == tuple(range(len(d2t))):
        return []
    return [
        RULE.finding(
            "error",
            "`d2t` is all zeros, and `t2d` keeps other tokens than the first "
            f"{len(d2t)}: the map was never filled",
            [*evidence, Seen("first ids kept", list(kept[:8]), "draft checkpoint: t2d")],
            fix,
        )
    ]


RULE = StaticRule("E3P413", "vocabulary map of zeros", PAGE, _check)
