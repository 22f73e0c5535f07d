"""E3P404: ranks hold different copies of what should be the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen
from sglang_eagle3_probe.rules.evidence import Evidence, RankEvidence

PAGE = Page(
    checks="That every rank holds the same vocabulary map, the same `fc` (where it is not "
    "sharded) and captures the same layers.",
    why="Ranks that disagree propose different tokens or feed each other different states. The "
    "usual reason is a node with another copy of the checkpoint, or another environment.",
    evidence="`vocab_map.digest`, `weights.digests.fc` and `layer_ids.slots` of each rank. Sharded "
    "tensors (embedding, head, the MLA draft's `fc`) differ by design and are not compared.",
    fix="Give every node the same draft checkpoint and the same variables.",
    ignore="Never: ranks that disagree cannot serve what was trained.",
)


def _facts(rank: RankEvidence) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if rank.vocab_map is not None and rank.vocab_map.digest:
        facts["vocabulary map"] = rank.vocab_map.digest
    if rank.weights is not None and "fc" in rank.weights.digests:
        fc = rank.weights.digests["fc"]
        # The MLA draft splits fc's rows over the ranks; only a whole fc is the same everywhere.
        whole = {draft.fc_out_features for draft in rank.drafts}
        if fc.shape and fc.shape[0] in whole:
            facts["fc"] = fc.digest
    if rank.served_output_ids is not None:
        facts["served output ids"] = str(rank.served_output_ids)
    return facts


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    by_what: dict[str, dict[str, list[str]]] = {}
    for rank in evidence.models:
        for what, value in _facts(rank).items():
            by_what.setdefault(what, {}).setdefault(value, []).append(rank.label)
    return [
        RULE.finding(
            "error",
            f"the ranks do not agree on the {what}: {len(values)} different ones",
            [
                Seen(f"{what} on {', '.join(labels)}", value, "vocab_map, weights, layer_ids")
                for value, labels in values.items()
            ],
            "give every node the same draft checkpoint and the same SGLANG_EAGLE3_PROBE_ variables",
        )
        for what, values in by_what.items()
        if len(values) > 1
    ]


RULE = Rule("E3P404", "ranks differ", PAGE, _check)
