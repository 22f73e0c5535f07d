"""E3P125: two lists of layer ids that name different layers.

SGLang reads ``eagle_config["eagle_aux_hidden_state_layer_ids"]`` alone (0.5.9 to 0.5.23); vLLM
reads the top level first (0.33.0).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key
from sglang_eagle3_probe.rules.static.layer_ids import asked_of_files, evidence, lists_elsewhere

PAGE = Page(
    checks="The list that SGLang reads against lists at the top level (speculators, vLLM), under "
    "AngelSlim's `aux_hidden_states_layer_ids` and under `eagle_config.layer_ids`, in each unit "
    "that such a list can be in.",
    why="A draft was trained on one list of layers. Where two in its config name different ones, "
    "one engine serves other layers than were trained, and nothing tells which.",
    evidence="Both lists, and the boundaries in force.",
    fix="Find the list of training and write it in both places, or remove the other: "
    '`"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}` in the unit that your target '
    "class reads, at the top level as boundaries.",
    ignore="When the other list is left over and the list SGLang reads is that of training.",
)


def _check(situation: Situation) -> list[Result]:
    found = asked_of_files(situation)
    if found is None or found.ids is None:
        return []
    served = tuple(sorted(found.boundaries))
    results: list[Result] = []
    for place, ids, unit in lists_elsewhere(situation):
        as_output_ids = tuple(sorted(o + 1 for o in ids))
        readings = {"h": {tuple(sorted(ids))}, "o": {as_output_ids}}
        readings["?"] = readings["h"] | readings["o"]
        # A list that is the other one word for word was copied, whatever its unit.
        if served in readings[unit] or ids == found.ids:
            continue
        results.append(
            RULE.finding(
                "warning",
                f"`{place}` {list(ids)} names other layers than the list that SGLang reads, "
                f"{found.list_text}",
                [*evidence(situation, found), Seen(place, list(ids), key(situation, place))],
                f"if {found.list_text} is the list of training, remove `{place}`, or write "
                f"{[h - 1 for h in served] if unit == 'o' else list(served)} there; if not, "
                'correct `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}`',
            )
        )
    return results


RULE = StaticRule("E3P125", "two lists of layer ids", PAGE, _check)
