"""E3P612: what this release calls accept rate.

Read in 0.5.9 and 0.5.10 (``scheduler_metrics_mixin.py``, ``tokenizer_manager.py``,
``scheduler_output_processor_mixin.py``): the log divides accepted tokens, the bonus token among
them, by rounds x draft tokens; the response divides correct drafts by rounds x (draft tokens - 1).
From 0.5.11 both are the latter (read in 0.5.11, 0.5.12.post1, 0.5.23). Releases before 0.5.9 were
not read.
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
        words.append(
            "the logged accept rate is accept length / draft tokens, bonus token counted; the "
            "response's is correct drafts / (draft tokens - 1)"
        )
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
