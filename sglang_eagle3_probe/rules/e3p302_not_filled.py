"""E3P302: parameters of the draft that nothing filled."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.e3p301_not_taken import shorten
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Parameters of the served draft that kept their initial value, and that nothing (such "
    "as the target's embedding) replaces later.",
    why="An unfilled linear layer is noise and an unfilled norm is all ones. SGLang does not check "
    "that every parameter of a draft was loaded.",
    evidence="`weights.not_filled`.",
    fix="Add the tensors to the checkpoint under the names listed, or correct the config flag that "
    "creates the parameter (fc_norm, norm_before_fc, num_hidden_layers, draft_vocab_size).",
    ignore="Never for linear layers; for a norm whose trained value is all ones it is harmless.",
)


def _check(rank: RankEvidence) -> list[Result]:
    weights = rank.weights
    if weights is None or not weights.not_filled:
        return []
    count = len(weights.not_filled)
    return [
        RULE.finding(
            "error",
            f"{count} parameter{'s' if count > 1 else ''} of the draft kept the initial value: "
            f"{shorten(weights.not_filled)}",
            [
                Seen("parameters not filled", weights.not_filled, "weights.not_filled"),
                Seen("checkpoint names nobody took", weights.not_taken, "weights.not_taken"),
            ],
            "add these tensors to the draft's checkpoint (a wrong prefix is the usual reason: "
            "compare with the names nobody took), or correct the config flag that creates them",
        )
    ]


RULE = Rule("E3P302", "draft parameters nobody filled", PAGE, per_rank(_check))
