"""E3P703: two slots hold the same tensor."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Pairs of aux slots that are equal, bit for bit, in every row of a window, where the "
    "target hands them out and where the draft reads them. Slots of zeros do not count.",
    why="Neighbouring layers are alike but never equal in every bit. Equal slots are one tensor "
    "twice: the same boundary listed twice, or a captured tensor that shares its storage with the "
    "live residual stream, so that a later layer's in-place update overwrote it. `fc` then gets "
    "one layer where it was trained on two.",
    evidence="`slot_stats.same_slots`.",
    fix="If the boundaries are equal, repair the list. If they differ, the model class captures "
    "without cloning: update SGLang or add a clone at the capture, and report it with the model "
    "class.",
    ignore="Never, when the draft was trained on different layers.",
)

_SITES = ("aux_", "extend_")


def _check(rank: RankEvidence) -> list[Result]:
    pairs: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    names: dict[tuple[int, int], str] = {}
    repeated: dict[tuple[int, int], bool] = {}
    for values in rank.values.values():
        if not values.site.startswith(_SITES):
            continue
        for pair, rows in values.same_slots.items():
            a, b = pair
            pairs.setdefault(pair, []).append((values.site, rows, values.rows))
            names[pair] = f"{values.name(a)} and {values.name(b)}"
            h = values.boundary(a)
            repeated[pair] = h is not None and h == values.boundary(b)
    results: list[Result] = []
    for pair, seen in pairs.items():
        sites = ", ".join(place for place, _, _ in seen)
        if repeated[pair]:
            why, fix = (
                "the same boundary is captured twice",
                "list every layer once, as the draft was trained",
            )
        else:
            why, fix = (
                "the boundaries differ, so one capture shares its storage with what later layers "
                "overwrite",
                "update SGLang, or clone the tensor where the model class captures it; name the "
                "model class when you report it",
            )
        results.append(
            RULE.finding(
                "error",
                f"{names[pair]} are the same tensor at {sites}, bit for bit: {why}",
                [
                    Seen(
                        f"{place}: rows of windows where all are equal",
                        f"{rows} of {total}",
                        "slot_stats.same_slots",
                    )
                    for place, rows, total in seen
                ],
                fix,
            )
        )
    return results


RULE = Rule("E3P703", "two slots are the same tensor", PAGE, per_rank(_check))
