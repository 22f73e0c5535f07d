"""E3P110: layer ids where SGLang does not look.

``spec_aux_hidden_state.py`` (0.5.23) and ``model_runner.py`` before it read only
``eagle_config["eagle_aux_hidden_state_layer_ids"]``, inside a bare ``except`` that leaves the
default in force. 0.5.9 to 0.5.23.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, eagle3_served, key
from sglang_eagle3_probe.rules.static.layer_ids import (
    fix_for,
    in_force,
    lists_elsewhere,
    release_readable,
    standard,
)

PAGE = Page(
    checks="Lists of layer ids at the top level (speculators, vLLM), under AngelSlim's "
    "`aux_hidden_states_layer_ids` or as `eagle_config.layer_ids`, while the key SGLang reads is "
    "absent.",
    why="SGLang then serves its default [2, N//2, N-3] without a word. If the list means other "
    "layers, the draft gets states it was never trained on; widths agree, so nothing fails.",
    evidence="The key, and the default that is in force instead.",
    fix='Write the list as output ids under `"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
    "[...]}` in the draft's config.json; the finding names the numbers for your target.",
    ignore="When the list equals the default in its own unit; the rule then only leaves a note.",
)


def _check(situation: Situation) -> list[Result]:
    elsewhere = lists_elsewhere(situation)
    if not elsewhere or situation.nested_ids or not eagle3_served(situation):
        return []
    place, ids, unit = elsewhere[0]
    layers = situation.num_layers
    if layers is None or not release_readable(situation):
        return [
            RULE.unknown(
                f"SGLang ignores `{place}` and serves its default instead; without the target's "
                "number of layers it cannot be said whether the two agree",
                "give the target's config.json with `--target`",
            )
        ]
    default = standard(situation, layers)
    readings = {"h": ids, "o": tuple(o + 1 for o in ids)}
    plain = (2, layers // 2, layers - 3)
    seen = [
        Seen("layer ids", list(ids), key(situation, place)),
        Seen("default boundaries in force", list(default), f"{layers} layers"),
    ]
    served = in_force(situation)
    if served is None and unit == "?":
        return []
    # A list that equals the default in either unit is the default in practice: converted
    # checkpoints keep the numbers of the unit they came from.
    if default in readings.values() and plain == default:
        return [
            RULE.finding(
                "note",
                f"SGLang does not read `{place}`; its default is the same layers here",
                seen,
                fix_for(situation, default, layers),
            )
        ]
    meant = ids if unit == "h" else readings["o"]
    either = "" if unit != "?" else f"; {fix_for(situation, ids, layers)} if it holds boundaries"
    return [
        RULE.finding(
            "error",
            f"SGLang ignores `{place}` {list(ids)} and captures the default boundaries "
            f"{list(default)}, which are other layers in either unit",
            seen,
            fix_for(situation, meant, layers) + either,
        )
    ]


RULE = StaticRule("E3P110", "layer ids where SGLang does not read them", PAGE, _check)
