"""E3P124: the trainer's own notes name other layers than those in force."""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import (
    evidence,
    fix_for,
    in_force,
    patched_serving,
    reads_list,
    write_text,
)

PAGE = Page(
    checks="`trained_on_output_ids` in `trainer_accuracy.json` beside the draft's weights against "
    "the boundaries that this SGLang release captures for the draft's config.",
    why="`fc` was trained on one concatenation of target states. On another the draft still runs, "
    "the text stays right, and next to nothing is accepted.",
    evidence="Both lists; output ids are boundaries minus 1, and -1 is the embedding.",
    fix='Write the trained list: `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}`. '
    "With -1 in it, start the server with `--enable-probe`.",
    ignore="When the notes belong to another run of the trainer.",
)


def _check(situation: Situation) -> list[Result]:
    trained = situation.draft.trained_output_ids
    found = in_force(situation)
    if trained is None or found is None:
        return []
    wanted = tuple(o + 1 for o in trained)
    # A list with -1 that fits the notes is E3P115's: stock SGLang cannot serve it.
    if wanted == found.boundaries or found.ids == trained:
        return []
    lost = 0 in wanted and 0 not in found.boundaries
    manner = "embedding first, served without it" if lost and wanted[0] == 0 else "served others"
    if 0 in wanted:
        fix = write_text(trained)
        if not reads_list(situation):
            fix += f" and {patched_serving(situation)}"
    else:
        fix = fix_for(situation, wanted, found.num_layers)
    return [
        RULE.finding(
            "error",
            f"trained on output ids {list(trained)} ({manner}): SGLang {situation.release} "
            f"captures output ids {[h - 1 for h in found.boundaries]}",
            [
                *evidence(situation, found),
                Seen("trained output ids", list(trained), "trainer_accuracy.json"),
            ],
            fix,
        )
    ]


RULE = StaticRule("E3P124", "the trainer's notes name other layers", PAGE, _check)
