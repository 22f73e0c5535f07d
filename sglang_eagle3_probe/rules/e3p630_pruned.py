"""E3P630: the tree drops what the draft had right."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.cause_evidence import (
    LEAST_ROUNDS,
    at_each_draft,
    often,
    setting_in_force,
)
from sglang_eagle3_probe.rules.evidence import Evidence

MUCH = 0.10
"""Of all rounds."""

PAGE = Page(
    checks=f"With topk above 1: whether surely more than {MUCH:.0%} of the rounds (95 % interval, "
    f"at least {LEAST_ROUNDS} rounds) were lost although the target's token was among the draft's "
    "topk at that place, because the submitted tree left it out.",
    why="The draft knew, and the budget of draft tokens did not reach. More draft tokens, or less "
    "breadth or depth for the same budget, would have kept some of them.",
    evidence="`refusals.ranks` (level `stats`) joined to `verify_round`.",
    fix="Raise --speculative-num-draft-tokens, or lower topk or steps, and compare the two runs: "
    "`sglang-eagle3-probe diff`.",
    ignore="When verification is the larger part of a round: more draft tokens cost time there.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    parts = evidence.understood.anatomy
    pruned = often(parts, "pruned", MUCH)
    if pruned is None:
        return []
    return [
        RULE.finding(
            "note",
            f"in {pruned.lost:.0%} of the rounds the draft had the target's token among its topk, "
            f"and the submitted tree left it out ({pruned.share:.0%} of all refusals)",
            [
                *at_each_draft(parts, "pruned", "pruned at draft", "refusals.ranks"),
                setting_in_force(evidence),
            ],
            "raise --speculative-num-draft-tokens, or lower topk or steps, and compare the runs "
            "with sglang-eagle3-probe diff",
        )
    ]


RULE = Rule("E3P630", "the tree drops right drafts", PAGE, _check)
