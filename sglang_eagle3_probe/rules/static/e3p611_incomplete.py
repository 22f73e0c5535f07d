"""E3P611: a combination of arguments that stops the server.

Without steps, the other two must be absent (an assertion); with steps, topk is compared with 1 and
must be a number (``server_args.py`` 0.5.9 to 0.5.12, ``speculative_hook.py`` 0.5.23). Draft tokens
left out stay None for a tree (real ``ServerArgs`` of four releases, docs/measurements), and
``organize_draft_results`` in ``eagle_utils.py`` takes one from them.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.spec_arguments import eagle_family, given

PAGE = Page(
    checks="Whether steps, topk and draft tokens are given all together or not at all, and whether "
    "a tree has room for its chain.",
    why="Half a set stops the server with a bare AssertionError or a TypeError. A tree of fewer "
    "tokens than steps + 1 never holds a full chain, so its last steps are drafted for nothing.",
    evidence="The three arguments.",
    fix="Give all three: `--speculative-num-steps`, `--speculative-eagle-topk`, "
    "`--speculative-num-draft-tokens`.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not eagle_family(situation):
        return []
    asked = given(situation)
    fix = (
        "give all three: `--speculative-num-steps`, `--speculative-eagle-topk`, "
        "`--speculative-num-draft-tokens`"
    )
    evidence = [
        Seen("given: steps, topk, tokens", [asked.steps, asked.topk, asked.tokens], "arguments")
    ]
    if asked.steps is None and (asked.topk is not None or asked.tokens is not None):
        return [
            RULE.finding(
                "error",
                "topk or draft tokens are given without steps: the server stops with an "
                "AssertionError",
                evidence,
                fix,
            )
        ]
    if asked.steps is not None and asked.topk is None:
        return [
            RULE.finding(
                "error",
                "steps are given without topk, which SGLang then compares with a number: the "
                "server stops with a TypeError",
                evidence,
                fix,
            )
        ]
    if asked.topk is not None and asked.topk > 1 and asked.tokens is None:
        return [
            RULE.finding(
                "error",
                f"topk {asked.topk} is given without draft tokens, which SGLang fills in for topk "
                "1 alone: the server stops with a TypeError when it builds the tree",
                evidence,
                fix,
            )
        ]
    if (
        asked.steps is not None
        and asked.topk is not None
        and asked.topk > 1
        and asked.tokens is not None
        and asked.tokens < asked.steps + 1
    ):
        return [
            RULE.finding(
                "warning",
                f"a tree of {asked.tokens} tokens cannot hold a chain of {asked.steps} steps",
                evidence,
                f"give `--speculative-num-draft-tokens` at least {asked.steps + 1}",
            )
        ]
    return []


RULE = StaticRule("E3P611", "numbers of speculation do not fit together", PAGE, _check)
