"""E3P411: ``d2t`` holds target ids instead of offsets.

SGLang adds ``arange`` to it (``load_weights`` of both draft classes, 0.5.9 to 0.5.23).
"""

from __future__ import annotations

from itertools import pairwise

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule

PAGE = Page(
    checks="Whether `d2t` looks like target ids: equal to the ids that `t2d` keeps, or strictly "
    "increasing and out of range once the position is added.",
    why="SGLang adds the position to every entry. Target ids then point elsewhere, most of them "
    "beyond the tokens the draft meant.",
    evidence="Values of `d2t` and `t2d`.",
    fix="Store offsets: `d2t[i] = target_id[i] - i`.",
    ignore="Never when it equals the ids of `t2d`.",
)


def looks_direct(situation: Situation) -> str | None:
    """Why the map looks direct; None if it does not."""
    d2t, kept = situation.draft.d2t, situation.draft.t2d_kept
    if not d2t or len(d2t) < 2:
        return None
    offsets = tuple(i + value for i, value in enumerate(d2t))
    if kept is not None and d2t == kept and offsets != kept:
        return "it equals the ids that t2d keeps"
    vocab = situation.target_vocab
    increasing = all(a < b for a, b in pairwise(d2t))
    if increasing and vocab is not None and d2t[-1] < vocab <= offsets[-1]:
        return f"it increases throughout, and with the position added reaches {offsets[-1]}"
    return None


def _check(situation: Situation) -> list[Result]:
    why = looks_direct(situation)
    if why is None or situation.draft.d2t is None:
        return []
    return [
        RULE.finding(
            "error",
            f"`d2t` holds target ids, not offsets ({why}), and SGLang adds the position to each",
            [
                Seen("first entries", list(situation.draft.d2t[:8]), "draft checkpoint: d2t"),
                Seen("largest entry", max(situation.draft.d2t), "draft checkpoint: d2t"),
                Seen("target vocabulary", situation.target_vocab, "target vocab_size"),
            ],
            "store offsets: `d2t[i] = target_id[i] - i`",
        )
    ]


RULE = StaticRule("E3P411", "d2t holds ids instead of offsets", PAGE, _check)
