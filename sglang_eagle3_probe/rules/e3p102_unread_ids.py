"""E3P102: layer ids stand in a place of the draft's config that this SGLang does not read."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.rules.layer_lists import CONFIG_KEY, as_boundaries, serve_as

PAGE = Page(
    checks="Id lists in places of the draft's config.json that this SGLang does not read, against "
    "the layers served.",
    why=f"SGLang reads `{CONFIG_KEY}` and nothing else, and takes its default without a word when "
    "that key is missing. Trainers also write the list at the top level of the config "
    "(speculators, in boundaries) or under `aux_hidden_states_layer_ids` (AngelSlim, in output "
    "ids).",
    evidence="`layer_ids.ignored_keys` and `layer_ids.slots`.",
    fix=f"Copy the list to `{CONFIG_KEY}`, as output ids (boundary - 1), or set "
    "SGLANG_EAGLE3_PROBE_LAYER_IDS.",
    ignore="When the unread list is a left-over and what is served is what the draft was trained "
    "on; set SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS and the rule falls silent.",
)

_UNITS = {
    "eagle_aux_hidden_state_layer_ids": "boundary",  # top level: speculators, vLLM
    "aux_hidden_states_layer_ids": "output_id",  # AngelSlim
}


def _readings(key: str, listed: list[int]) -> list[list[int]]:
    """The list as output ids, in every unit it may be in."""
    unit = "output_id" if -1 in listed else _UNITS.get(key)
    as_output_ids, from_boundaries = list(listed), [h - 1 for h in listed]
    if unit == "output_id":
        return [as_output_ids]
    if unit == "boundary":
        return [from_boundaries]
    return [as_output_ids, from_boundaries]


def _check(rank: RankEvidence) -> list[Result]:
    ids, served = rank.layer_ids, rank.served_output_ids
    if ids is None or served is None or ids.trained_output_ids == served:
        return []
    results: list[Result] = []
    for key, listed in ids.ignored_keys.items():
        readings = _readings(key, listed)
        if served in readings:
            continue
        default = ids.configured is None
        what = "SGLang's default is served instead" if default else "another list is served"
        fix = serve_as(ids.trained_output_ids or readings[0], rank)
        if len(readings) > 1 and ids.trained_output_ids is None:
            fix = f"if {listed} are output ids: {fix}; if they are boundaries, subtract 1 from each"
        results.append(
            RULE.finding(
                "error" if default else "warning",
                f"`{key}` = {listed} is not read by this SGLang; {what}: output ids {served}",
                [
                    Seen(f"{key} in the draft's config", listed, "layer_ids.ignored_keys"),
                    Seen("served boundaries", as_boundaries(served), "layer_ids.slots"),
                    Seen("list in force from", ids.configured_at, "layer_ids.configured_at"),
                ],
                fix,
            )
        )
    return results


RULE = Rule("E3P102", "layer ids in a place SGLang does not read", PAGE, per_rank(_check))
