"""E3P632: the draft's first choice was right and was refused."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.intervals import wilson
from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen
from sglang_eagle3_probe.rules.evidence import Evidence

MUCH = 0.02
LEAST_JOINED = 100

PAGE = Page(
    checks=f"Whether in surely more than {MUCH:.0%} of the refusals under greedy verification of a "
    "chain the target's token ranks first in the draft's own distribution.",
    why="Greedy verification takes the draft's first choice when it is the target's. If it "
    "refused, the token that was submitted is not the one that the draft computed: the vocabulary "
    "map turned it into another, or another row's draft was submitted.",
    evidence="`refusals.ranks` (level `stats`), joined to `verify_round` with `greedy` true.",
    fix="Look at E3P401 and E3P402 (the map). If they are silent, compare a run with "
    "--disable-cuda-graph and one with a single request at a time.",
    ignore="Below a few per cent: equal logits are broken differently by argmax and by rank.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    parts = evidence.understood.anatomy
    found, joined = parts.contradictions, parts.joined
    if joined < LEAST_JOINED or wilson(found, joined).low <= MUCH:
        return []
    return [
        RULE.finding(
            "warning",
            f"in {found / joined:.0%} of the refusals the draft's first choice was the target's "
            "token, and another token was submitted",
            [Seen("rank 1 and refused", f"{found} of {joined}", "refusals.ranks")],
            "check the vocabulary map (E3P401, E3P402); then compare with --disable-cuda-graph and "
            "with one request at a time",
        )
    ]


RULE = Rule("E3P632", "right drafts refused", PAGE, _check)
