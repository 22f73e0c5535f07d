"""E3P123: the trainer does not write its layer ids into the config.

NeMo Automodel takes them from the recipe and writes none; SGLang's default is then in force.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation, int_list
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import TOP, StaticRule, names_with
from sglang_eagle3_probe.rules.static.layer_ids import MEASURE, asked_of_files

PAGE = Page(
    checks="Drafts of NeMo Automodel (architecture LlamaEagle3DraftModel, or all tensors under "
    "`model.`) without a list of layer ids.",
    why="NeMo keeps the ids in its recipe. If the recipe named its own, SGLang's default serves "
    "other layers and nothing tells.",
    evidence="The architecture, tensor names, and the absence of a list.",
    fix='Look into the recipe; if it names ids, write them as `"eagle_config": '
    '{"eagle_aux_hidden_state_layer_ids": [...]}`.',
    ignore="When the recipe leaves the ids alone.",
)


def _check(situation: Situation) -> list[Result]:
    found = asked_of_files(situation)
    if found is None or found.ids is not None:
        return []
    if int_list(situation.draft.config.get(TOP)):
        return []
    prefixed = bool(names_with(situation, "model.fc.")) and bool(
        names_with(situation, "model.layers.0.")
    )
    if situation.draft_class != "LlamaEagle3DraftModel" and not prefixed:
        return []
    return [
        RULE.unknown(
            "NeMo does not write the layer ids of training; the default boundaries "
            f"{list(found.boundaries)} are in force",
            f"the aux layer ids in the training recipe; or {MEASURE}",
        )
    ]


RULE = StaticRule("E3P123", "layer ids of training are not in the config", PAGE, _check)
