"""E3P417: how much of a text the draft's vocabulary covers."""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.e3p411_direct_map import looks_direct

LOW = 0.95
PAGE = Page(
    checks="The share of tokens in a file you name that the draft's vocabulary holds (the ids "
    f"i + d2t[i]): a note, and a warning below {LOW:.0%}.",
    why="A target token outside the draft's vocabulary can never be proposed, so the share bounds "
    "the acceptance of the first position from above, and each later one again.",
    evidence="Token counts of the file, and `d2t`.",
    fix="Rebuild `d2t` from counts of text the target writes in your traffic and retrain the head, "
    'or use a larger `"draft_vocab_size"`.',
    ignore="When the file is not what the server will write.",
)


def _check(situation: Situation) -> list[Result]:
    counts, d2t = situation.token_counts, situation.draft.d2t
    if not counts or not d2t or looks_direct(situation) is not None:
        return []
    kept = {i + value for i, value in enumerate(d2t)}
    total = sum(counts.values())
    inside = sum(count for token, count in counts.items() if token in kept)
    share = inside / total if total > 0 else 1.0
    worst = sorted((t for t in counts if t not in kept), key=lambda t: (-counts[t], t))[:8]
    return [
        RULE.finding(
            "warning" if share < LOW else "note",
            f"the draft's vocabulary covers {share:.1%} of the {total} tokens in the file"
            + ("; the rest can never be proposed" if inside < total else ""),
            [
                Seen("tokens covered", inside, "token file"),
                Seen("tokens in all", total, "token file"),
                Seen("most frequent tokens outside", worst, "token file"),
            ],
            "rebuild `d2t` from text the target writes in your traffic and retrain the head, or "
            'use a larger `"draft_vocab_size"`',
        )
    ]


RULE = StaticRule("E3P417", "draft vocabulary misses the traffic", PAGE, _check)
