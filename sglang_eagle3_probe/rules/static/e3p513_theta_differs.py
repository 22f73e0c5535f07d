"""E3P513: the draft's rotary theta is not the one it was trained with, or not the target's.

What a draft was trained with decides, and only its trainer's notes say that for sure. A theta of
its own is no fault: templates of SpecForge name one. But a config's theta is no proof either:
trainers have ignored the key (SpecForge#265), and configs have named another than training used
(sfllm#32).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.rope import rope_of
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class, since, target_key

PAGE = Page(
    checks="The rotary theta that SGLang takes for the draft: against the `trained_rope_theta` of "
    "the trainer's notes (`trainer_accuracy.json`) where there are any, else against the target's.",
    why="A draft served with another theta than it was trained with loses acceptance, the more the "
    "further it looks back. The draft's own training decides, not the target: a draft may well "
    "have a theta of its own, so without notes a difference is a question to the trainer.",
    evidence="Theta in both configs, and in the trainer's notes.",
    fix='Write the theta of training as `"rope_theta"` into the draft\'s config.json. Some '
    "trainers did not read the key and trained with 10000 whatever the config says; look into the "
    "trainer's code or logs, or serve both and compare accept lengths.",
    ignore="As a note: when the draft was trained with exactly this theta.",
)


def _check(situation: Situation) -> list[Result]:
    draft, target = rope_of(situation.draft.config), rope_of(situation.target.text_config)
    if not known_class(situation):
        return []
    mine = draft.theta(reads_new=since(situation, "0.5.10"))
    here = Seen("theta", mine, key(situation, "rope_theta"))
    trained = situation.draft.trained_rope_theta
    if trained is not None:
        if trained == mine:
            return []
        return [
            RULE.finding(
                "error",
                f"trained with rotary theta {trained:g}, served with {mine:g}",
                [here, Seen("theta of training", trained, "trainer_accuracy.json")],
                f'set `"rope_theta": {trained:g}` in the draft\'s config.json',
            )
        ]
    other = target.theta(reads_new=True)
    if not target.named or mine == other:
        return []
    return [
        RULE.finding(
            "note",
            f"the draft is served with rotary theta {mine:g}"
            + ("" if draft.named else " (SGLang's default, its config names none)")
            + f", and the target has {other:g}: no fault if it was trained so, which its config "
            "does not prove",
            [here, Seen("theta", other, target_key(situation, "rope_theta"))],
            "compare with the theta of training; where it differs, write that one as "
            '`"rope_theta"` into the draft\'s config.json',
        )
    ]


RULE = StaticRule("E3P513", "rotary theta of the draft", PAGE, _check)
