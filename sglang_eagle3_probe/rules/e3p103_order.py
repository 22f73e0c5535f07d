"""E3P103: the configured list is not ascending."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Whether the configured layer ids ascend, and if not, whether the concatenation follows "
    "the list.",
    why="SGLang captures in the order of its layer loop, so the concatenation ascends whatever the "
    "list says. Several trainers concatenate in list order. Then `fc`'s column blocks meet the "
    "wrong slots.",
    evidence="`layer_ids.configured`, `layer_ids.slots` and `aux_states.reordered`.",
    fix="Leave the patch `capture_order` on (SGLANG_EAGLE3_PROBE_PATCHES); or permute the column "
    "blocks of `fc.weight` to ascending order and write the list ascending.",
    ignore="When the trainer sorted the list too; then the draft expects ascending order. "
    "SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS says so.",
)


def _check(rank: RankEvidence) -> list[Result]:
    ids = rank.layer_ids
    if ids is None or ids.configured is None or ids.configured == sorted(ids.configured):
        return []
    boundaries = [slot.boundary for slot in ids.slots]
    follows = boundaries != sorted(boundaries)
    evidence = [
        Seen("configured list", ids.configured, ids.configured_at),
        Seen("served boundaries", boundaries, "layer_ids.slots"),
        Seen("slots reordered", any(a.reordered for a in rank.aux), "aux_states.reordered"),
    ]
    if follows and ids.source_patched:
        return [
            RULE.finding(
                "note",
                f"the list {ids.configured} is not ascending, and SGLang's patched source made the "
                "concatenation follow it",
                evidence,
                "nothing to do while these files serve this draft; SGLang as released would "
                "concatenate ascending",
            )
        ]
    if follows:
        return [
            RULE.finding(
                "note",
                f"the list {ids.configured} is not ascending, and the probe made the concatenation "
                "follow it",
                evidence,
                "nothing to do while the probe serves this draft; stock SGLang would concatenate "
                "ascending",
            )
        ]
    if ids.trained_output_ids == rank.served_output_ids:
        return []
    return [
        RULE.finding(
            "error",
            f"the list {ids.configured} is not ascending, but SGLang concatenates ascending: "
            f"boundaries {boundaries}",
            evidence,
            "add capture_order to SGLANG_EAGLE3_PROBE_PATCHES, or write the list ascending and "
            "permute the column blocks of fc.weight to match",
        )
    ]


RULE = Rule("E3P103", "layer ids are not ascending", PAGE, per_rank(_check))
