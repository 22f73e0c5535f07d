"""E3P513: the draft's rotary theta is not the target's.

Neither engine nor trainer demands that they agree, so this is a question to the trainer's config.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class, since, target_key
from sglang_eagle3_probe.rules.static.rope import rope_of

PAGE = Page(
    checks="The rotary theta that SGLang takes for the draft against the target's.",
    why="Trainers usually copy the target's theta. A draft served with another theta than it was "
    "trained with loses acceptance, the more the further it looks back. The draft's own training "
    "decides, not the target.",
    evidence="Theta in both configs.",
    fix='Write the theta of training as `"rope_theta"` into the draft\'s config.json.',
    ignore="When the draft was trained with exactly this theta (several templates do).",
)


def _check(situation: Situation) -> list[Result]:
    draft, target = rope_of(situation.draft.config), rope_of(situation.target.text_config)
    if not known_class(situation) or not target.named:
        return []
    reads_new = since(situation, "0.5.10")
    mine, other = draft.theta(reads_new=reads_new), target.theta(reads_new=True)
    if mine == other:
        return []
    return [
        RULE.finding(
            "warning" if draft.named else "note",
            f"the draft is served with rotary theta {mine:g}"
            + ("" if draft.named else " (SGLang's default, its config names none)")
            + f", and the target has {other:g}: right only if it was trained so",
            [
                Seen("theta", mine, key(situation, "rope_theta")),
                Seen("theta", other, target_key(situation, "rope_theta")),
            ],
            f'write the theta of training into the draft\'s config.json, `"rope_theta": {other:g}` '
            "if that was the target's",
        )
    ]


RULE = StaticRule("E3P513", "rotary theta differs from the target's", PAGE, _check)
