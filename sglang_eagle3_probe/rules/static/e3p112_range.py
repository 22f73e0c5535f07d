"""E3P112: layer ids outside the target.

No setter checks the range (0.5.9 to 0.5.23); a boundary that the loop over layers never meets is
not captured.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import evidence, in_force

PAGE = Page(
    checks="Every boundary in force lies between the embedding (0) and the last layer (N), with "
    "the default's entries on shallow targets included.",
    why="An id past the end is never captured, so the draft gets fewer states than its `fc` takes "
    "and the server stops at the first request; flag-based classes stop with an IndexError.",
    evidence="The list, the number of layers, the boundaries in force.",
    fix='Name ids inside the target in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
    "[...]}`; check that the target is the one the draft was trained for.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    if found is None:
        return []
    outside = [h for h in found.boundaries if h < 0 or h > found.num_layers]
    if found.ids is not None and -1 in found.ids:
        outside = [h for h in outside if h != -1]  # E3P115
    if not outside:
        return []
    return [
        RULE.finding(
            "error",
            f"{found.list_text} asks for boundaries {outside} of a target with "
            f"{found.num_layers} layers: they are never captured",
            evidence(situation, found),
            'name ids inside the target in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
            "[...]}`, or serve the target the draft was trained for",
        )
    ]


RULE = StaticRule("E3P112", "layer ids outside the target", PAGE, _check)
