"""E3P212: ``use_aux_hidden_state`` is false.

Read from ``eagle_config`` only (``spec_aux_hidden_state.py`` 0.5.23, the model runner before). The
draft then gets the final post-norm state, and ``fc`` runs only when widths differ.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key

PAGE = Page(
    checks="`eagle_config.use_aux_hidden_state: false` against `fc.weight` and layer ids in the "
    "draft.",
    why="The draft gets the target's final state alone and skips `fc`, since the widths agree. A "
    "draft trained on several states accepts nothing that way.",
    evidence="The flag, the shape of `fc.weight`, the list of layer ids.",
    fix='Remove `"use_aux_hidden_state": false` from `eagle_config` if the draft was trained on '
    "aux states.",
    ignore="Drafts trained on the final state (ModelOpt recipes that capture [-1]).",
)


def _check(situation: Situation) -> list[Result]:
    if situation.uses_aux:
        return []
    fc, width = situation.fc_in, situation.hidden or situation.draft_hidden
    trained = fc is not None and width is not None and fc >= 2 * width
    place = key(situation, "eagle_config.use_aux_hidden_state")
    return [
        RULE.finding(
            "error" if trained else "note",
            "`use_aux_hidden_state` is false: the draft gets the target's final post-norm state"
            + (" and skips its trained `fc`" if trained else ""),
            [
                Seen("use_aux_hidden_state", False, place),
                Seen("fc input width", fc, "draft checkpoint: fc.weight"),
            ],
            'remove `"use_aux_hidden_state": false` from `eagle_config` if the draft was trained '
            "on aux states",
        )
    ]


RULE = StaticRule("E3P212", "aux states are switched off", PAGE, _check)
