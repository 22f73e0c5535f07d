"""E3P610: draft tokens or all three numbers are not the ones given.

Sources: see ``spec_arguments.py``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.spec_arguments import eagle_family, given

PAGE = Page(
    checks="`--speculative-num-steps`, `--speculative-eagle-topk` and "
    "`--speculative-num-draft-tokens` as given against what comes into force.",
    why="With topk 1 SGLang replaces the draft tokens by steps + 1; without any of the three it "
    "chooses by the target's architecture. Accept length and rate are then those of another budget "
    "than you compare with.",
    evidence="The arguments and the numbers in force.",
    fix="With `--speculative-eagle-topk 1` give `--speculative-num-draft-tokens` as steps + 1, or "
    "leave it out; give all three for numbers of your own.",
    ignore="When the numbers in force are the ones you want.",
)


def _check(situation: Situation) -> list[Result]:
    if not eagle_family(situation):
        return []
    asked = given(situation)
    force = asked.in_force(situation.target_class)
    evidence = [
        Seen("given: steps, topk, tokens", [asked.steps, asked.topk, asked.tokens], "arguments"),
        Seen("in force", [force.steps, force.topk, force.tokens], f"SGLang {situation.release}"),
    ]
    if asked.steps is None:
        if asked.topk is not None or asked.tokens is not None:
            return []
        return [
            RULE.finding(
                "note",
                f"no numbers given: SGLang chooses {force.steps} steps, topk {force.topk}, "
                f"{force.tokens} draft tokens for {situation.target_class}",
                evidence,
                "name them yourself: `--speculative-num-steps`, `--speculative-eagle-topk`, "
                "`--speculative-num-draft-tokens`",
            )
        ]
    if asked.topk != 1 or asked.tokens is None or asked.tokens == force.tokens:
        return []
    return [
        RULE.finding(
            "warning",
            f"with topk 1 SGLang sets the draft tokens to steps + 1 = {force.tokens}, not "
            f"{asked.tokens}",
            evidence,
            f"give `--speculative-num-draft-tokens {force.tokens}`, or raise "
            f"`--speculative-num-steps` to {asked.tokens - 1}"
            if asked.tokens > 1
            else f"give `--speculative-num-draft-tokens {force.tokens}`",
        )
    ]


RULE = StaticRule("E3P610", "numbers of speculation are not those given", PAGE, _check)
