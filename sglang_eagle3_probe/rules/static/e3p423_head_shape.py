"""E3P423: the stored head does not have the draft's width.

``ParallelLMHead(draft_vocab_size, hidden_size)`` in both draft classes, 0.5.9 to 0.5.23.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, known_class, seen_key
from sglang_eagle3_probe.rules.static.draft_module import quantised

PAGE = Page(
    checks="Columns of `lm_head.weight` and rows of `fc.weight` against the draft's `hidden_size`; "
    "with a null `draft_vocab_size`, the target's width too.",
    why="The weight cannot be loaded, or the target's head is put into a draft of another width.",
    evidence="Shapes in the safetensors headers.",
    fix='Correct `"hidden_size"` in the draft\'s config.json, or export the tensors again.',
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    width = situation.draft_hidden
    if width is None or not known_class(situation) or quantised(situation):
        return []
    wrong: list[Seen] = []
    head = situation.draft.tensor("lm_head.weight")
    if head is not None and len(head.shape) == 2 and head.shape[1] != width:
        wrong.append(Seen("shape", list(head.shape), "draft checkpoint: lm_head.weight"))
    if situation.fc_out is not None and situation.fc_out != width:
        shape = [situation.fc_out, situation.fc_in]
        wrong.append(Seen("shape", shape, "draft checkpoint: fc.weight"))
    if not wrong:
        return []
    return [
        RULE.finding(
            "error",
            f"the draft's hidden size is {width} by its config, and stored weights have another",
            [*wrong, seen_key(situation, "hidden_size")],
            'correct `"hidden_size"` in the draft\'s config.json, or export the weights again',
        )
    ]


RULE = StaticRule("E3P423", "stored weights of another width", PAGE, _check)
