"""E3P104: a slot is repeated or missing."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="That no layer id is repeated, that as many aux states arrive as there are slots, and "
    "that their widths add up to `fc`'s input.",
    why="A repeated id yields one state, and an id the target's class cannot reach yields none. "
    "Then the concatenation is too narrow: a shape error at `fc`, or, if widths fit by chance, "
    "wrong blocks.",
    evidence="`layer_ids.configured`, `layer_ids.slots`, `layer_ids.draft_num_aux`, "
    "`aux_states.count` and `.widths`, `draft_forward.fc_in_features`.",
    fix="Name as many different layers as the draft was trained on, each within reach: boundary h "
    "from 0 to N - 1 (h = N, the last layer's output, only in some classes).",
    ignore="Never: the draft does not get what it was trained on.",
)

_FIX = (
    "name as many different layer ids as the draft's fc was trained on, each from output id -1 "
    "to N - 2 (N layers), in eagle_config.eagle_aux_hidden_state_layer_ids or "
    "SGLANG_EAGLE3_PROBE_LAYER_IDS"
)


def _check(rank: RankEvidence) -> list[Result]:
    results: list[Result] = []
    ids = rank.layer_ids
    configured = ids.configured if ids is not None else None
    repeated = sorted({i for i in configured or [] if (configured or []).count(i) > 1})
    if repeated:
        results.append(
            RULE.finding(
                "error",
                f"layer id {', '.join(map(str, repeated))} is in the list {configured} twice, and "
                "each layer is captured once",
                [Seen("configured list", configured, "layer_ids.configured")],
                _FIX,
            )
        )
    if ids is not None and ids.draft_num_aux is not None and ids.draft_num_aux != len(ids.slots):
        results.append(
            RULE.finding(
                "error",
                f"the draft expects {ids.draft_num_aux} slots and {len(ids.slots)} are captured",
                [
                    Seen("slots the draft expects", ids.draft_num_aux, "layer_ids.draft_num_aux"),
                    Seen("served output ids", rank.served_output_ids, "layer_ids.slots"),
                ],
                _FIX,
            )
        )
    results.extend(_arrived(rank))
    return results


def _arrived(rank: RankEvidence) -> list[Result]:
    ids, wanted = rank.layer_ids, rank.fc_in_features
    for aux in rank.aux:
        if aux.count is None:
            continue  # E3P203 speaks of that
        got = sum(aux.widths)
        short = ids is not None and bool(ids.slots) and aux.count != len(ids.slots)
        if not short and (wanted is None or got == wanted):
            continue
        expected = f"{len(ids.slots)} slots" if short and ids else f"fc's input width {wanted}"
        return [
            RULE.finding(
                "error",
                f"{aux.count} aux states of {got} columns in all arrived in {aux.phase}, but "
                f"{expected} were expected",
                [
                    Seen("aux states", aux.count, f"aux_states.count, {aux.phase}"),
                    Seen("their widths", aux.widths, f"aux_states.widths, {aux.phase}"),
                    Seen("fc input width", wanted, "draft_forward.fc_in_features"),
                ],
                _FIX,
            )
        ]
    return []


RULE = Rule("E3P104", "a slot is repeated or missing", PAGE, per_rank(_check))
