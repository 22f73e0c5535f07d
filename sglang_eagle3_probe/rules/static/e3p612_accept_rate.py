"""E3P612: what this release calls accept rate.

0.5.6 to 0.5.10: the log counts the bonus token and divides by rounds times draft tokens, the
response does neither. From 0.5.11: correct drafts / (rounds x (draft tokens - 1)) in both
(``metrics_reporter.py`` read in 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, since
from sglang_eagle3_probe.rules.static.spec_arguments import eagle_family, given

PAGE = Page(
    checks="The formula behind the accept rate that this release logs, and whether topk makes a "
    "tree of it.",
    why="The same words mean other quantities by release: with the bonus token and k draft tokens "
    "a length of L is a rate of L/k, without it (L-1)/(k-1). In a tree the denominator counts tree "
    "slots, so the rate is no probability.",
    evidence="The release, and topk in force.",
    fix="Compare accept lengths instead, or `spec_correct_drafts_histogram` of the response; with "
    "`--speculative-eagle-topk 1` rate and probability agree.",
    ignore="When you compare accept lengths only.",
)


def _check(situation: Situation) -> list[Result]:
    if not eagle_family(situation):
        return []
    force = given(situation).in_force(situation.target_class)
    tree = force.topk is not None and force.topk > 1
    old = not since(situation, "0.5.11")
    if not old and not tree:
        return []
    words = []
    if old:
        words.append("the logged accept rate counts the bonus token, that of the response does not")
    if tree:
        words.append(f"with topk {force.topk} the rate divides by tree slots and is no probability")
    return [
        RULE.finding(
            "note",
            f"SGLang {situation.release}: " + "; ".join(words),
            [
                Seen("release", situation.release, "--sglang-version"),
                Seen("topk in force", force.topk, "--speculative-eagle-topk"),
            ],
            "compare accept lengths, or use `--speculative-eagle-topk 1` and the histogram of "
            "the response",
        )
    ]


RULE = StaticRule("E3P612", "what the accept rate means here", PAGE, _check)
