"""E3P101: the draft was trained on other layers than it is served."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.rules.layer_lists import serve_as

PAGE = Page(
    checks="The output ids the draft was trained on, in training order, against the output ids of "
    "the slots it is served, in concatenation order.",
    why="`fc` has one block of columns per slot. A block that is fed another layer than it was "
    "trained on projects noise: nothing crashes, text stays right, and acceptance falls. A draft "
    "trained with the embedding output in front (output id -1) and served without it loses most "
    "of its acceptance.",
    evidence="`layer_ids.trained_output_ids` (from SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS or the "
    "trainer's own file beside the weights) and `layer_ids.slots`.",
    fix='Write the trained list into the draft\'s config.json, `"eagle_config": '
    '{"eagle_aux_hidden_state_layer_ids": [-1, 2, 30]}`, or start the server with '
    "SGLANG_EAGLE3_PROBE_LAYER_IDS=-1,2,30. For a list without -1 also set "
    "SGLANG_EAGLE3_PROBE_LAYER_IDS_UNIT=output_id, since some model classes read such a list as "
    "boundaries. A list that is not ascending needs the patch `capture_order` (on by default).",
    ignore="When you try another list on purpose. Neighbouring layers of a small model are nearly "
    "alike, so acceptance can look right although a slot is one off.",
)


def _difference(trained: Sequence[int], served: Sequence[int]) -> str:
    """What kind of difference, in words; both are output ids."""
    listed, got = list(trained), list(served)
    if -1 in listed and -1 not in got:
        place = "embedding first" if listed[0] == -1 else "with the embedding"
        return f"trained on {listed} ({place}), served without it: fc gets output ids {got}"
    if sorted(listed) == sorted(got):
        return (
            f"trained on {listed}, served in another order: fc gets output ids {got}, so its "
            "column blocks meet the wrong slots"
        )
    if got == [o + 1 for o in listed]:
        return (
            f"trained on {listed}, every slot is one layer late: fc gets output ids {got} (the "
            "list was read in the wrong unit)"
        )
    if got == [o - 1 for o in listed]:
        return (
            f"trained on {listed}, every slot is one layer early: fc gets output ids {got} (the "
            "list was read in the wrong unit)"
        )
    if len(listed) != len(got):
        return f"trained on {len(listed)} slots {listed}, served {len(got)}: output ids {got}"
    wrong = [i for i, (a, b) in enumerate(zip(listed, got, strict=True)) if a != b]
    slots = ", ".join(str(i) for i in wrong)
    return f"trained on {listed}, served output ids {got}: slot {slots} differs"


def _check(rank: RankEvidence) -> list[Result]:
    ids = rank.layer_ids
    served = rank.served_output_ids
    if ids is None or not served:
        return []
    trained = ids.trained_output_ids
    if trained is None:
        return [
            RULE.unknown(
                f"what the draft was trained on is not recorded; fc gets output ids {served}",
                "set SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS to the output ids used in training, in "
                "training order, such as -1,2,30",
            )
        ]
    if trained == served:
        return []
    evidence = [
        Seen("trained output ids", trained, ids.trained_source or "layer_ids.trained_output_ids"),
        Seen("served output ids", served, "layer_ids.slots"),
        Seen("list as configured", ids.configured, ids.configured_at or "layer_ids.configured"),
    ]
    return [RULE.finding("error", _difference(trained, served), evidence, serve_as(trained, rank))]


RULE = Rule("E3P101", "served layers are not the trained layers", PAGE, per_rank(_check))
