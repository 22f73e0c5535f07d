"""E3P201: the draft skipped ``fc`` where it should have used it."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Whether `fc` projected the hidden states in the draft's extends (after prefill and "
    "after verify), and left the draft's own state alone in its decode steps.",
    why="SGLang applies `fc` only when the incoming width differs from the embedding's width. If "
    "the aux states were lost on the way, one ordinary hidden state of the right width arrives, "
    "`fc` is skipped without a word, and acceptance falls to nothing.",
    evidence="`draft_forward.fc`, `.width_in`, `.embed_width` and `.phase`.",
    fix="Find why the aux states did not arrive: the algorithm flag (E3P202), a model wrapper that "
    "drops them (E3P203), or a single captured layer.",
    ignore="In draft decode steps a bypass is right, and not reported.",
)


def _check(rank: RankEvidence) -> list[Result]:
    results: list[Result] = []
    for draft in rank.drafts:
        evidence = [
            Seen("width in", draft.width_in, f"draft_forward.width_in, {draft.phase}"),
            Seen("embedding width", draft.embed_width, "draft_forward.embed_width"),
            Seen("fc input width", draft.fc_in_features, "draft_forward.fc_in_features"),
            Seen("calls", draft.calls, f"draft_forward.calls, {draft.phase}"),
        ]
        if draft.fc == "bypassed" and draft.phase != "decode":
            results.append(
                RULE.finding(
                    "error",
                    f"fc was bypassed in {draft.phase}: {draft.width_in} columns came in where fc "
                    f"takes {draft.fc_in_features}",
                    evidence,
                    "start with --speculative-algorithm EAGLE3; if that is so already, this target "
                    "class loses its aux states (see E3P203), and a newer SGLang may carry them",
                )
            )
        elif draft.fc == "taken" and draft.phase == "decode":
            results.append(
                RULE.finding(
                    "warning",
                    f"fc was applied in a draft decode step to {draft.width_in} columns; the "
                    "draft's own state should come back in unprojected",
                    evidence,
                    "report this to sglang-eagle3-probe with the trace: SGLang's draft loop has "
                    "changed",
                )
            )
    return results


RULE = Rule("E3P201", "fc was bypassed", PAGE, per_rank(_check))
