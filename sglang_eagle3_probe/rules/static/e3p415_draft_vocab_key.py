"""E3P415: ``draft_vocab_size`` missing or null.

``llama_eagle3.py`` reads the attribute without a default (0.5.9 to 0.5.23): a missing key is an
``AttributeError``, null means the target's head. ``kimi_k25_eagle3.py`` treats both as null.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import LLAMA, StaticRule, key, known_class, served_class

PAGE = Page(
    checks="Whether the draft's config has `draft_vocab_size`, and what a null means with the head "
    "in the checkpoint.",
    why="Without the key the Llama draft class stops with an AttributeError. With null the draft's "
    "own head is replaced by the target's, whatever the checkpoint holds.",
    evidence="The key, and the presence and rows of `lm_head.weight`.",
    fix='Write `"draft_vocab_size"` with the number of rows of the draft\'s head (the full '
    "vocabulary if it is not reduced); null only to use the target's head on purpose.",
    ignore="A null in a draft that was trained on the target's head.",
)


def _check(situation: Situation) -> list[Result]:
    config = situation.draft.config
    if not known_class(situation):
        return []
    rows = situation.head_rows or situation.draft.integer("vocab_size")
    evidence = [
        Seen(
            "draft_vocab_size",
            config.get("draft_vocab_size", "absent"),
            key(situation, "draft_vocab_size"),
        ),
        Seen("lm_head rows", situation.head_rows, "draft checkpoint: lm_head.weight"),
    ]
    fix = f'write `"draft_vocab_size": {rows}` into the draft\'s config.json'
    if served_class(situation) == LLAMA and "draft_vocab_size" not in config:
        return [
            RULE.finding(
                "error",
                "`draft_vocab_size` is missing: the draft class reads it without a default and "
                "the server stops with an AttributeError",
                evidence,
                fix,
            )
        ]
    if config.get("draft_vocab_size") is not None or situation.head_rows is None:
        return []
    if config.get("tie_word_embeddings"):
        return []
    return [
        RULE.finding(
            "warning",
            "`draft_vocab_size` is not set, so the target's head replaces the one in the "
            "draft's checkpoint",
            evidence,
            fix + "; leave it if the draft was trained on the target's head",
        )
    ]


RULE = StaticRule("E3P415", "draft_vocab_size missing or null", PAGE, _check)
