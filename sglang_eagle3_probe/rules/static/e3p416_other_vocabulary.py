"""E3P416: draft and target have different vocabularies.

The draft builds its embedding with its own ``vocab_size``; the worker puts the target's in its
place (``set_embed`` in both draft classes' sources, 0.5.9 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, target_key

PAGE = Page(
    checks="`vocab_size` of the draft's config against the target's, and `draft_vocab_size` "
    "against both.",
    why="Token ids travel between the two models unchanged. Another vocabulary usually means that "
    "the draft belongs to another target; a difference of padding rows is harmless.",
    evidence="The keys of both configs.",
    fix="Check that this is the target the draft was trained for; if only padding differs, write "
    'the target\'s number into `"vocab_size"` of the draft.',
    ignore="When the two differ by padding rows only.",
)


def _check(situation: Situation) -> list[Result]:
    target, whole = situation.target_vocab, situation.draft_config_vocab
    if target is None:
        return []
    evidence = [
        Seen("vocab_size", whole, key(situation, "vocab_size")),
        Seen(
            "draft_vocab_size",
            situation.draft.config.get("draft_vocab_size"),
            key(situation, "draft_vocab_size"),
        ),
        Seen("vocab_size", target, target_key(situation, "vocab_size")),
    ]
    fix = f'check the target; if it is the right one, set `"vocab_size": {target}` in the draft'
    rows = situation.draft_vocab
    if rows is not None and rows > target and situation.draft.config.get("draft_vocab_size"):
        return [
            RULE.finding(
                "warning",
                f"the draft's head has {rows} rows, more than the target's {target} tokens",
                evidence,
                fix,
            )
        ]
    if whole is None or whole == target:
        return []
    return [
        RULE.finding(
            "warning",
            f"the draft was made for {whole} tokens and the target has {target}: another target, "
            "or other padding",
            evidence,
            fix,
        )
    ]


RULE = StaticRule("E3P416", "draft and target vocabularies differ", PAGE, _check)
