"""E3P414: sizes of map, head and vocabulary disagree.

``ParallelLMHead(draft_vocab_size, hidden_size)`` in both draft classes; the loader asserts shapes,
while ``hot_token_id`` takes any length (0.5.9 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class

PAGE = Page(
    checks="Entries of `d2t`, rows of `lm_head.weight`, `draft_vocab_size`; size of `t2d` and the "
    "number it keeps; the target's `vocab_size`.",
    why="A head of another size than `draft_vocab_size` does not load. A map of another length "
    "than the head belongs to another head.",
    evidence="Shapes in the safetensors headers, and the config keys.",
    fix='Set `"draft_vocab_size"` to the rows of `lm_head.weight`, and export `d2t` with the same '
    "number of entries.",
    ignore="`t2d` is not read by SGLang; its size alone does no harm.",
)


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation) or situation.draft.tensors is None:
        return []
    named = situation.draft.integer("draft_vocab_size")
    head, d2t = situation.head_rows, situation.draft.d2t
    tied = bool(situation.draft.config.get("tie_word_embeddings"))
    wrong: list[str] = []
    doubtful: list[str] = []
    if named is not None and head is not None and named != head and not tied:
        wrong.append(f"lm_head has {head} rows and draft_vocab_size is {named}")
    rows = named if named is not None else head
    if d2t is not None and rows is not None and len(d2t) != rows:
        wrong.append(f"d2t has {len(d2t)} entries for {rows} draft tokens")
    kept, size = situation.draft.t2d_kept, situation.draft.t2d_size
    if kept is not None and d2t is not None and len(kept) != len(d2t):
        doubtful.append(f"t2d keeps {len(kept)} tokens and d2t has {len(d2t)} entries")
    if size is not None and situation.target_vocab is not None and size != situation.target_vocab:
        doubtful.append(f"t2d has {size} entries for {situation.target_vocab} target tokens")
    if not wrong and not doubtful:
        return []
    return [
        RULE.finding(
            "error" if wrong else "warning",
            "sizes of the draft's vocabulary disagree: " + "; ".join([*wrong, *doubtful]),
            [
                Seen("draft_vocab_size", named, key(situation, "draft_vocab_size")),
                Seen("lm_head rows", head, "draft checkpoint: lm_head.weight"),
                Seen("d2t entries", len(d2t) if d2t is not None else None, "d2t"),
                Seen("t2d entries", size, "draft checkpoint: t2d"),
            ],
            f'set `"draft_vocab_size": {head}` in the draft\'s config.json'
            if head is not None and d2t is not None and len(d2t) == head and named != head
            else "export `d2t`, `t2d` and `lm_head.weight` from the same training run",
        )
    ]


RULE = StaticRule("E3P414", "vocabulary sizes disagree", PAGE, _check)
