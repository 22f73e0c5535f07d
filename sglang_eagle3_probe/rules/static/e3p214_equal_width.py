"""E3P214: what arrives is as wide as the draft, so ``fc`` is skipped.

Both draft classes apply ``fc`` (and the norms before it) only when the incoming width differs from
that of the embedding (0.5.9 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class
from sglang_eagle3_probe.rules.static.layer_ids import evidence, in_force

PAGE = Page(
    checks="Number of states in force times the target's hidden size against the draft's "
    "`hidden_size`.",
    why="With equal widths SGLang takes the states for the draft's own recurrent state and skips "
    "`fc` and its norms. One aux state alone is the usual way to get there. Nothing is logged.",
    evidence="The list of layer ids, the hidden sizes of both configs.",
    fix='Train with several states, `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}`, '
    "or patch the draft class to apply `fc` in every extend.",
    ignore="A draft that was trained without `fc` on one state.",
)


def _check(situation: Situation) -> list[Result]:
    found, width, hidden = in_force(situation), situation.hidden, situation.draft_hidden
    if found is None or width is None or hidden is None or not known_class(situation):
        return []
    arriving = len(set(found.boundaries)) * width
    if arriving != hidden:
        return []
    stored = situation.draft.tensors is not None and situation.fc_in is None
    return [
        RULE.finding(
            "note" if stored else "error",
            f"{len(set(found.boundaries))} states of {width} are as wide as the draft ({hidden}): "
            "SGLang skips fc",
            [
                *evidence(situation, found),
                Seen("hidden_size", hidden, key(situation, "hidden_size")),
                Seen("fc input width", situation.fc_in, "draft checkpoint: fc.weight"),
            ],
            'name the ids of training in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
            "[...]}`; with one state, `fc` runs only in a patched draft class",
        )
    ]


RULE = StaticRule("E3P214", "fc is skipped because widths agree", PAGE, _check)
