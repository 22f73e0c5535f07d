"""E3P412: the map is no ascending selection of target tokens, or not the one t2d marks."""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.e3p411_direct_map import looks_direct
from sglang_eagle3_probe.rules.static.e3p413_zero_map import is_zero

PAGE = Page(
    checks="The ids i + d2t[i]: within the target's vocabulary, no id twice, ascending, and the "
    "same set as `t2d` marks.",
    why="All trainers that prune the vocabulary sort the kept ids. A map that breaks this is stale "
    "or belongs to another head; SGLang indexes with it as it is (both draft classes, 0.5.9 to "
    "0.5.23), and proposals become other tokens.",
    evidence="Values of `d2t` and `t2d`.",
    fix="Export `d2t` again together with the head it belongs to: `d2t[i] = kept_id[i] - i`, kept "
    "ids ascending.",
    ignore="A map that is merely not ascending can be right if the trainer kept another order.",
)


def _check(situation: Situation) -> list[Result]:
    d2t, vocab = situation.draft.d2t, situation.target_vocab
    if not d2t or looks_direct(situation) is not None or is_zero(d2t):
        return []
    ids = [i + value for i, value in enumerate(d2t)]
    wrong: list[str] = []
    doubtful: list[str] = []
    if min(ids) < 0:
        wrong.append(f"its smallest id is {min(ids)}")
    if vocab is not None and max(ids) >= vocab:
        wrong.append(f"its largest id {max(ids)} is outside the {vocab} target tokens")
    twice = len(ids) - len(set(ids))
    if twice:
        wrong.append(f"{twice} entries repeat an id")
    elif ids != sorted(ids):
        doubtful.append("its ids are not ascending")
    kept = situation.draft.t2d_kept
    if kept is not None and set(ids) != set(kept):
        wrong.append(f"{len(set(ids) ^ set(kept))} ids are in one of d2t and t2d only")
    if not wrong and not doubtful:
        return []
    return [
        RULE.finding(
            "error" if wrong else "warning",
            f"the vocabulary map is {'wrong' if wrong else 'doubtful'}: "
            + "; ".join([*wrong, *doubtful]),
            [
                Seen("entries", len(d2t), "draft checkpoint: d2t"),
                Seen("ids from, to", [min(ids), max(ids)], "i + d2t[i]"),
                Seen("ids kept by t2d", len(kept) if kept is not None else None, "t2d"),
                Seen("target vocabulary", vocab, "target vocab_size"),
            ],
            "export `d2t` again together with the head it belongs to (`d2t[i] = kept_id[i] - i`)",
        )
    ]


RULE = StaticRule("E3P412", "vocabulary map is wrong", PAGE, _check)
