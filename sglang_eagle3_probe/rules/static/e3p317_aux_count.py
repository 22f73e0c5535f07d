"""E3P317: the class sizes ``fc`` for another number of states than the checkpoint.

``llama_eagle3.py``: always 3 to 0.5.11; ``num_aux_hidden_states``, then nested ids, then 3 from
0.5.12. ``kimi_k25_eagle3.py``: nested ids, then top-level ids, then 3.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    NESTED,
    StaticRule,
    eagle3_served,
    key,
    known_class,
    seen_key,
    since,
)
from sglang_eagle3_probe.rules.static.draft_module import aux_count, input_width

PAGE = Page(
    checks="The number of aux states that the draft class of this release sizes `fc` for, against "
    "`fc.weight`, and against the number of layer ids.",
    why="The stored weight does not fit the parameter and loading stops, or the states that arrive "
    "do not fit `fc`.",
    evidence="`num_aux_hidden_states`, the lists of ids, the shape of `fc.weight`.",
    fix='Set `"num_aux_hidden_states"` to the number of states of training; drafts with other than '
    "three states need SGLang 0.5.12 or later.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation) or not eagle3_served(situation) or not situation.uses_aux:
        return []
    built, width, fc = aux_count(situation), input_width(situation), situation.fc_in
    nested = situation.nested_ids
    asked = len(nested) if nested else 3
    evidence = [
        seen_key(situation, "num_aux_hidden_states"),
        Seen("layer ids", list(nested) if nested else None, key(situation, NESTED)),
        Seen("fc input width", fc, "draft checkpoint: fc.weight"),
        Seen("states fc is built for", built, f"{situation.draft_class} {situation.release}"),
    ]
    if asked != built:
        old = not since(situation, "0.5.12")
        return [
            RULE.finding(
                "error",
                f"SGLang captures {asked} states, and {situation.draft_class} of "
                f"{situation.release} builds fc for {built}",
                evidence,
                "upgrade SGLang: `pip install sglang>=0.5.12`"
                if old
                else f'set `"num_aux_hidden_states": {asked}` in the draft\'s config.json, or name '
                f'{built} ids in `"eagle_config"`',
            )
        ]
    if fc is None or width is None or built * width == fc or width != situation.hidden:
        return []
    if fc % width == 0 and situation.num_layers is not None:
        return []  # E3P120 says it with the list
    return [
        RULE.finding(
            "error",
            f"fc is built for {built} states of {width}, and the stored weight takes {fc}",
            evidence,
            'correct `"hidden_size"` / `"target_hidden_size"`, or '
            '`"num_aux_hidden_states"` in the draft\'s config.json',
        )
    ]


RULE = StaticRule("E3P317", "number of aux states", PAGE, _check)
