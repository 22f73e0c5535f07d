"""E3P211: EAGLE3 with an EAGLE-1/2 draft.

``llama_eagle.py`` and ``qwen2_eagle.py`` concatenate the embedding with one state: their ``fc`` is
2 H wide, and the aux concatenation of EAGLE3 does not fit it (0.5.9 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key

PAGE = Page(
    checks="`--speculative-algorithm EAGLE3` against a draft of the EAGLE-1 classes, or an `fc` "
    "two states wide without any EAGLE-3 sign.",
    why="The draft expects one state beside the embedding and gets three: the first forward stops.",
    evidence="The argument, the draft's architecture, the shape of `fc.weight`.",
    fix="Start the server with `--speculative-algorithm EAGLE`.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if situation.algorithm != "EAGLE3":
        return []
    name = situation.draft_class or ""
    if not name.endswith("Eagle"):
        return []
    return [
        RULE.finding(
            "error",
            f"the draft is {name}, an EAGLE-1 class, and the algorithm is EAGLE3: three states do "
            "not fit its fc",
            [
                Seen("algorithm", "EAGLE3", "--speculative-algorithm"),
                Seen("draft architecture", name, key(situation, "architectures")),
                Seen("fc input width", situation.fc_in, "draft checkpoint: fc.weight"),
            ],
            "start the server with `--speculative-algorithm EAGLE`",
        )
    ]


RULE = StaticRule("E3P211", "EAGLE3 given an EAGLE-1 draft", PAGE, _check)
