"""E3P633: the tree ends below drafts that were right."""

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
    f"at least {LEAST_ROUNDS} rounds) were lost below a right draft that the draft model was not "
    "run on, so that nothing could follow it.",
    why="After each step the draft goes on with topk branches only, the likeliest. A draft that is "
    "submitted beside them and turns out right is the end of its path, whatever the draft would "
    "have said next. More draft tokens do not help: they submit more such ends.",
    evidence="`refusals.unexpanded` (level `stats`) joined to `verify_round`.",
    fix="Raise --speculative-eagle-topk, so that more branches are gone on with, or lower "
    "--speculative-num-draft-tokens to what these branches fill, and compare the two runs: "
    "`sglang-eagle3-probe diff`.",
    ignore="When the draft's own steps are a large part of a round (`phase_times`): a larger topk "
    "costs time there.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    parts = evidence.understood.anatomy
    ends = often(parts, "unexpanded", MUCH)
    if ends is None:
        return []
    return [
        RULE.finding(
            "note",
            f"in {ends.lost:.0%} of the rounds the last right draft was none of the topk branches "
            f"that the draft went on with ({ends.share:.0%} of all refusals)",
            [
                *at_each_draft(
                    parts,
                    "unexpanded",
                    "nothing followed the right drafts at position",
                    "refusals.unexpanded",
                ),
                setting_in_force(evidence),
            ],
            "raise --speculative-eagle-topk, or lower --speculative-num-draft-tokens to what the "
            "branches fill, and compare the runs with sglang-eagle3-probe diff",
        )
    ]


RULE = Rule("E3P633", "the tree ends below right drafts", PAGE, _check)
