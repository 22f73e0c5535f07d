"""E3P410: a reduced head without ``d2t``.

``hot_token_id`` is set from ``d2t`` alone (``llama_eagle3.py`` 0.5.9 to 0.5.23,
``kimi_k25_eagle3.py`` 0.5.12 to 0.5.23); without it the worker uses draft ids as target ids.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    StaticRule,
    key,
    known_class,
    names_with,
    reduced,
    target_key,
)

PAGE = Page(
    checks="A draft head smaller than the target's vocabulary comes with a `d2t` tensor.",
    why="Without the map SGLang takes draft ids for target ids: nearly every proposal is another "
    "token than the draft meant. Nothing is logged; accept length is close to 1.00.",
    evidence="`draft_vocab_size`, the target's `vocab_size`, tensor names.",
    fix="Export `d2t` into the draft's safetensors: `d2t[i] = kept_id[i] - i`, kept ids ascending.",
    ignore="When the draft keeps the first tokens of the vocabulary in order; an all-zero `d2t` "
    "says so plainly.",
)


def _check(situation: Situation) -> list[Result]:
    if situation.draft.tensors is None or not known_class(situation) or not reduced(situation):
        return []
    if names_with(situation, "d2t"):
        return []
    return [
        RULE.finding(
            "error",
            f"the draft's head has {situation.draft_vocab} rows for {situation.target_vocab} "
            "target tokens and the checkpoint has no `d2t`: draft ids are used as target ids",
            [
                Seen(
                    "draft_vocab_size",
                    situation.draft_vocab,
                    key(situation, "draft_vocab_size"),
                ),
                Seen("vocab_size", situation.target_vocab, target_key(situation, "vocab_size")),
                Seen("d2t", None, "draft checkpoint"),
            ],
            "export `d2t` into the draft's safetensors (`d2t[i] = kept_id[i] - i`, kept ids "
            "ascending)",
        )
    ]


RULE = StaticRule("E3P410", "reduced head without d2t", PAGE, _check)
