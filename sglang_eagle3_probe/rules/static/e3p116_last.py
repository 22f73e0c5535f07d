"""E3P116: the state after the last layer is asked for, and the class never meets it.

Which class captures boundary N since which release is data in ``host/target_classes.py``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import reach
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import evidence, in_force

PAGE = Page(
    checks="Whether a boundary in force is N, the state after the last layer, and whether the "
    "target's class captures it.",
    why="Most classes capture at the entry of a layer, and no layer N is entered: one state is "
    "missing and the server stops at the first request.",
    evidence="The list, the boundaries in force, the class and release.",
    fix='Name an earlier layer in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}` '
    "and train the draft with it. If the list held boundaries, write each minus 1.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    if found is None or found.num_layers not in found.boundaries:
        return []
    n = found.num_layers
    if reach(situation.target_class, situation.release, n, n) in {"captured", "unknown"}:
        return []
    ids = found.ids or ()
    hint = (
        f'; if the list held boundaries, write `"eagle_aux_hidden_state_layer_ids": '
        f"{[i - 1 for i in ids]}`"
        if ids and not found.as_is and min(ids) > 0
        else ""
    )
    return [
        RULE.finding(
            "error",
            f"{found.list_text} asks for the state after the last of {n} layers, which "
            f"{situation.target_class} of SGLang {situation.release} never captures",
            evidence(situation, found),
            'name an earlier layer in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
            f"[...]}}` and train with it{hint}",
        )
    ]


RULE = StaticRule("E3P116", "the last layer's output cannot be captured", PAGE, _check)
