"""E3P510: theta or scaling that this release reads from the other place.

``llama.py`` reads ``rope_theta`` and ``rope_scaling`` in 0.5.9, and ``rope_parameters`` before them
from 0.5.10; ``kimi_k25_eagle3.py`` does the latter from its first release. Transformers 5 makes
that block out of all three: ``rope_scaling`` if there is one, and a lone ``rope_theta`` put into
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sglang_eagle3_probe.checkpoint.facts import Situation, number
from sglang_eagle3_probe.checkpoint.rope import Rope, kind_of, rope_of
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    StaticRule,
    key,
    known_class,
    seen_key,
    since,
)

PAGE = Page(
    checks="Rotary theta and scaling of the draft in both layouts: `rope_theta` / `rope_scaling`, "
    "and `rope_parameters`.",
    why="Where the two disagree, one wins without a word: from SGLang 0.5.10 a `rope_scaling` "
    "takes the place of `rope_parameters`, theta included. SGLang 0.5.9 does not read "
    "`rope_parameters` and falls back to theta 10000 without scaling. With another theta than in "
    "training every position is rotated wrongly, and acceptance falls with the distance looked "
    "back.",
    evidence="The keys, and the release.",
    fix='Write the theta of training into both places, `"rope_theta"` and '
    '`"rope_parameters": {"rope_theta": ...}`, and the scaling into one block.',
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation):
        return []
    rope, reads_new = rope_of(situation.draft.config), since(situation, "0.5.10")
    return [*_thetas(situation, rope, reads_new), *_scalings(situation, rope, reads_new)]


def _thetas(situation: Situation, rope: Rope, reads_new: bool) -> list[Result]:
    theta = rope.theta(reads_new=reads_new)
    named = {
        "rope_theta": rope.old_theta,
        "rope_parameters.rope_theta": rope.new_theta,
        "rope_scaling.rope_theta": rope.scaling_theta,
    }
    values = sorted({value for value in named.values() if value is not None})
    if not values or values == [theta]:
        return []
    evidence = [Seen("rope_theta", value, key(situation, n)) for n, value in named.items()]
    if len(values) > 1:
        return [
            RULE.finding(
                "warning",
                f"the draft's config names several rotary thetas, {_and(values)}; SGLang "
                f"{situation.release} takes {theta:g}",
                evidence,
                'write the theta of training into both `"rope_theta"` and '
                '`"rope_parameters": {"rope_theta": ...}`',
            )
        ]
    why = (
        "`rope_scaling` takes the place of `rope_parameters`, and the theta in that is lost"
        if reads_new
        else f"SGLang {situation.release} does not read "
        + ("`rope_parameters`" if rope.scaling_theta is None else "a theta within `rope_scaling`")
    )
    return [
        RULE.finding(
            "error",
            f"{why}: theta is {theta:g} instead of {values[0]:g}",
            evidence,
            f'write `"rope_theta": {values[0]:g}` at the top level of the draft\'s config.json',
        )
    ]


def _scalings(situation: Situation, rope: Rope, reads_new: bool) -> list[Result]:
    mine, other = _scaling(rope.old_scaling), _scaling(rope.parameters)
    evidence = [
        seen_key(situation, "rope_scaling"),
        Seen("rope_parameters", dict(rope.parameters), key(situation, "rope_parameters")),
    ]
    if not reads_new:
        if other in (PLAIN, mine):
            return []
        return [
            RULE.finding(
                "error",
                f"SGLang {situation.release} does not read `rope_parameters`: positions are not "
                f"scaled by {other[0]} as they were meant to be",
                evidence,
                'write the block as `"rope_scaling"` into the draft\'s config.json, and its theta '
                'as `"rope_theta"` beside it',
            )
        ]
    if not rope.old_scaling or not rope.parameters or mine == other:
        return []
    return [
        RULE.finding(
            "warning",
            f"`rope_scaling` ({_words(mine)}) takes the place of `rope_parameters` "
            f"({_words(other)}) in the draft's config",
            evidence,
            'keep the block of training alone, as `"rope_parameters"` with its theta',
        )
    ]


Scaling: TypeAlias = tuple[str, float | None]
PLAIN: Scaling = ("default", None)


def _scaling(block: Mapping[str, Any]) -> Scaling:
    """Type and factor; a factor without a type scales nothing."""
    kind = kind_of(block)
    return PLAIN if kind == "default" else (kind, number(block.get("factor")))


def _words(scaling: Scaling) -> str:
    return scaling[0] + (f" {scaling[1]:g}" if scaling[1] is not None else "")


def _and(values: Sequence[float]) -> str:
    *most, last = (f"{value:g}" for value in values)
    return f"{', '.join(most)} and {last}"


RULE = StaticRule("E3P510", "rotary settings in two layouts", PAGE, _check)
