"""E3P607: acceptance falls with the length of the context."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.slices import ENOUGH_ROUNDS, surely_less
from sglang_eagle3_probe.rules.base import Page, Result, Rule
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.slice_evidence import enough, length, rows

FACTOR = 0.7

PAGE = Page(
    checks=f"Whether rounds in the longest contexts have surely fewer correct drafts than {FACTOR} "
    f"times those in the shortest (95 % intervals, {ENOUGH_ROUNDS} rounds each).",
    why="A draft trained on short sequences loses its way where its rotary positions end, where a "
    "scaling of the target's is not in its own config, or where a sliding window is not read. The "
    "server says nothing: drafts are refused one by one.",
    evidence="`verify_round.context_lens`, in buckets that double.",
    fix="Compare max_position_embeddings, rope_theta, rope_scaling and sliding_window of the draft "
    "with the target's and with training; E3P510 to E3P513 of the doctor look at them. Otherwise "
    "train on longer sequences.",
    ignore="When long contexts are another kind of traffic (retrieval, agents) and the draft is as "
    "weak there with short ones.",
)


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    slices = evidence.understood.slices_of("context_length")
    found = enough(slices)
    if slices is None or len(found) < 2 or not surely_less(found[-1], found[0], FACTOR):
        return []
    short, long = found[0], found[-1]
    return [
        RULE.finding(
            "warning",
            f"the accept length falls from {length(short)} in contexts of {short.label} tokens to "
            f"{length(long)} in those of {long.label}",
            rows(slices, "verify_round.context_lens"),
            "compare max_position_embeddings, rope settings and sliding_window of the draft's "
            "config with the target's and with training (sglang-eagle3-probe doctor); if they are "
            "right, train on longer sequences",
        )
    ]


RULE = Rule("E3P607", "acceptance falls with context length", PAGE, _check)
