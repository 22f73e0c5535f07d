"""E3P421: ``tie_word_embeddings`` in the draft's config.

Both draft classes make ``lm_head`` the embedding module, so that ``lm_head.weight`` of the
checkpoint finds no parameter and the embedding then becomes the target's (0.5.9 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, known_class, seen_key, served_class

PAGE = Page(
    checks="`tie_word_embeddings: true` in a draft, against its head and vocabulary.",
    why="SGLang then uses the embedding, which it replaces with the target's, as the draft's head. "
    "A trained `lm_head.weight` is dropped. With a reduced vocabulary the first rows of the "
    "target's embedding would stand for the draft's tokens.",
    evidence="The key, `draft_vocab_size`, `lm_head.weight`.",
    fix='Set `"tie_word_embeddings": false` in the draft\'s config.json.',
    ignore="A draft without a head of its own, trained on the target's tied embedding.",
)


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation) or not situation.draft.config.get("tie_word_embeddings"):
        return []
    rows, vocab = situation.draft.integer("draft_vocab_size"), situation.draft_config_vocab
    small = rows is not None and vocab is not None and rows < vocab
    head = situation.head_rows
    if not small and head is None:
        return []
    if situation.draft_class != served_class(situation):
        return [
            RULE.unknown(
                "once its architecture is renamed, `tie_word_embeddings` makes the target's "
                "embedding the draft's head; its trainer may not have tied them",
                'look for `lm_head.weight` in the checkpoint: with it, set `"tie_word_embeddings": '
                "false` in the draft's config.json",
            )
        ]
    return [
        RULE.finding(
            "error",
            "`tie_word_embeddings` is true, so the target's embedding becomes the draft's head"
            + (f" and the {head} trained rows of lm_head are dropped" if head is not None else ""),
            [
                seen_key(situation, "tie_word_embeddings"),
                seen_key(situation, "draft_vocab_size"),
                Seen("lm_head rows", head, "draft checkpoint: lm_head.weight"),
            ],
            'set `"tie_word_embeddings": false` in the draft\'s config.json',
        )
    ]


RULE = StaticRule("E3P421", "draft head tied to the target's embedding", PAGE, _check)
