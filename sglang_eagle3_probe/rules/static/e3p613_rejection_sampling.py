"""E3P613: rejection sampling with a reduced vocabulary.

``eagle_worker_v2.py`` (0.5.23) raises a ``ValueError`` when the vocabularies differ in size.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, reduced
from sglang_eagle3_probe.rules.static.spec_arguments import given

PAGE = Page(
    checks="`--speculative-use-rejection-sampling` against the draft's vocabulary and topk.",
    why="It needs one vocabulary and a chain. With a draft of a reduced vocabulary, or topk above "
    "1, the server stops.",
    evidence="The arguments and `draft_vocab_size`.",
    fix="Leave `--speculative-use-rejection-sampling` out, and use `--speculative-eagle-topk 1` "
    "where you keep it.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not situation.argument("speculative_use_rejection_sampling"):
        return []
    small = reduced(situation)
    topk = given(situation).in_force(situation.target_class).topk
    if not small and (topk is None or topk == 1):
        return []
    return [
        RULE.finding(
            "error",
            "rejection sampling stops the server: "
            + ("the draft's vocabulary is reduced" if small else f"topk is {topk}, not 1"),
            [
                Seen("--speculative-use-rejection-sampling", True, "arguments"),
                Seen(
                    "draft_vocab_size",
                    situation.draft_vocab,
                    key(situation, "draft_vocab_size"),
                ),
                Seen("topk in force", topk, "--speculative-eagle-topk"),
            ],
            "leave `--speculative-use-rejection-sampling` out"
            if small
            else "start with `--speculative-eagle-topk 1`",
        )
    ]


RULE = StaticRule("E3P613", "rejection sampling needs one vocabulary and a chain", PAGE, _check)
