"""E3P510: theta or scaling that this release reads from the other place.

``llama.py`` reads ``rope_theta`` and ``rope_scaling`` in 0.5.9, and ``rope_parameters`` before them
from 0.5.10; ``kimi_k25_eagle3.py`` does the latter from its first release. Transformers 5 keeps the
theta in ``rope_parameters`` when both are given, and copies a lone ``rope_theta`` into it.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class, seen_key, since
from sglang_eagle3_probe.rules.static.rope import DEFAULT_THETA, rope_of

PAGE = Page(
    checks="Rotary theta and scaling of the draft in both layouts: `rope_theta` / `rope_scaling`, "
    "and `rope_parameters`.",
    why="Where the two disagree, one wins without a word. SGLang 0.5.9 does not read "
    "`rope_parameters` and falls back to theta 10000. With another theta than in training every "
    "position is rotated wrongly, and acceptance falls with the distance looked back.",
    evidence="The keys, and the release.",
    fix='Write the theta of training into both places: `"rope_theta"` and '
    '`"rope_parameters": {"rope_theta": ...}`.',
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation):
        return []
    rope, reads_new = rope_of(situation.draft.config), since(situation, "0.5.10")
    evidence = [
        seen_key(situation, "rope_theta"),
        Seen("rope_theta", rope.new_theta, key(situation, "rope_parameters.rope_theta")),
    ]
    theta = rope.theta(reads_new=reads_new)
    if rope.new_theta is not None and rope.old_theta is not None:
        if rope.new_theta == rope.old_theta:
            return []
        return [
            RULE.finding(
                "warning",
                f"the draft's config names two rotary thetas, {rope.old_theta:g} and "
                f"{rope.new_theta:g}; SGLang {situation.release} takes {theta:g}",
                evidence,
                'write the theta of training into both `"rope_theta"` and '
                '`"rope_parameters": {"rope_theta": ...}`',
            )
        ]
    if rope.new_theta is not None and not reads_new and rope.new_theta != DEFAULT_THETA:
        return [
            RULE.finding(
                "error",
                f"SGLang {situation.release} does not read `rope_parameters`: theta is "
                f"{DEFAULT_THETA:g} instead of {rope.new_theta:g}",
                evidence,
                f'write `"rope_theta": {rope.new_theta:g}` at the top level of the draft\'s '
                "config.json",
            )
        ]
    return []


RULE = StaticRule("E3P510", "rotary settings in two layouts", PAGE, _check)
