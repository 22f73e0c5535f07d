"""E3P606: the draft vocabulary lacks what the target says."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.cause_evidence import LEAST_ROUNDS, at_each_draft, often
from sglang_eagle3_probe.rules.evidence import Evidence

MUCH = 0.05
"""Of all rounds."""

PAGE = Page(
    checks=f"Whether surely more than {MUCH:.0%} of the rounds (95 % interval, at least "
    f"{LEAST_ROUNDS} rounds) end at a token that the draft vocabulary lacks.",
    why="At such a token no draft can be right, however good it is. A draft vocabulary counted on "
    "other text (another language, code, a tokenizer's special tokens) puts a ceiling on the "
    "accept length that no training lifts.",
    evidence="`verify_round.out_of_vocab`, by position.",
    fix="Count the draft vocabulary again on answers of this target to this traffic, or train with "
    "a larger one. `doctor --tokens FILE` says what a map covers.",
    ignore="When E3P402 reports the map: a wrong map lacks tokens that a right one has.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    parts = evidence.understood.anatomy
    lacking = often(parts, "out_of_vocab", MUCH)
    if lacking is None:
        return []
    return [
        RULE.finding(
            "warning",
            f"in {lacking.lost:.0%} of the rounds the draft stops at a token that its vocabulary "
            f"lacks ({lacking.share:.0%} of all refusals)",
            at_each_draft(
                parts,
                "out_of_vocab",
                "refused for want of a token at draft",
                "verify_round.out_of_vocab",
            ),
            "count the draft vocabulary again on answers of this target to this traffic, or train "
            "with a larger one; doctor --tokens FILE shows what the map covers",
        )
    ]


RULE = Rule("E3P606", "draft vocabulary misses the traffic", PAGE, _check)
