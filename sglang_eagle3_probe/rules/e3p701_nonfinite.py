"""E3P701: NaN or infinite values."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="NaN and infinite values in every tapped tensor: the target's embedding and aux states, "
    "the draft's inputs, `fc` output and hidden states.",
    why="One NaN spreads over its row. NaN in what the draft reads gives an accept length of 1; "
    "NaN in the logits can also make verification accept everything, and the text turns to "
    "exclamation marks. The first place in the flow that has them is where to look; the places "
    "after it inherit them.",
    evidence="`slot_stats.slots[].nonfinite`, all windows added up. Padded rows of CUDA graphs are "
    "left out where the probe knows them; values that may lie in padded rows make a warning only.",
    fix="If the target's states have them first: quantisation or its scales, the attention back "
    "end, the KV cache's dtype; compare with --disable-cuda-graph, another --attention-backend "
    "and an unquantised KV cache. If only the draft has them: draft KV rows that were never "
    "written (compare with --disable-radix-cache), and the draft's quantisation.",
    ignore="As a warning, if it goes away with --disable-cuda-graph: then the values were in "
    "padded rows, which nobody reads.",
)

_TARGET = ("target_embedding", "aux_")


def _check(rank: RankEvidence) -> list[Result]:
    where = [
        (values, number, slot)
        for values in rank.values.values()
        for number, slot in enumerate(values.slots)
        if slot.nonfinite
    ]
    if not where:
        return []
    sure = [entry for entry in where if entry[2].nonfinite_sure]
    first, number, slot = (sure or where)[0]
    sites = list(dict.fromkeys(values.site for values, _, _ in where))
    after = [site for site in sites if site != first.site]
    message = (
        f"non-finite values (NaN or infinite) at {first.site} {first.name(number)}: "
        f"{slot.nonfinite} in {slot.rows} rows"
    )
    if after:
        message += f"; also at {', '.join(after[:4])}"
        message += f" and {len(after) - 4} more" if len(after) > 4 else ""
    if not sure:
        message += "; all may lie in padded rows of CUDA graphs, which nobody reads"
    if not sure:
        fix = "send the same requests to a server with --disable-cuda-graph and read again"
    elif first.site.startswith(_TARGET):
        fix = (
            "the target makes them: compare with another --attention-backend, with "
            "--disable-cuda-graph, and with an unquantised KV cache"
        )
    else:
        fix = (
            "the target's states are finite, the draft's are not: compare with "
            "--disable-radix-cache (draft KV rows never written), another "
            "--speculative-draft-attention-backend, and an unquantised draft"
        )
    evidence = [
        Seen(
            f"{values.site} {values.name(i)}",
            f"{s.nonfinite} values in {s.rows} rows",
            "slot_stats.slots[].nonfinite",
        )
        for values, i, s in where[:8]
    ]
    return [RULE.finding("error" if sure else "warning", message, evidence, fix)]


RULE = Rule("E3P701", "non-finite values", PAGE, per_rank(_check))
