"""E3P325: an MLA draft whose tensors are prefixed ``model.``.

``kimi_k25_eagle3.py`` 0.5.12 to 0.5.23 puts ``model.`` in front of every name but ``lm_head``, so a
name that already has it matches nothing (a warning per tensor is logged).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, is_mla, tensor_names

PAGE = Page(
    checks="Whether an MLA draft's tensors start with `model.`.",
    why="The class adds that prefix itself, so prefixed names match nothing and the draft serves "
    "uninitialised memory. The Llama draft class takes both forms.",
    evidence="Tensor names.",
    fix="Remove the leading `model.` from the tensor names of the checkpoint.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if not is_mla(situation):
        return []
    lost = [name for name in tensor_names(situation) if name.startswith("model.")]
    lost = [name for name in lost if not name.endswith((".d2t", ".t2d"))]
    if not lost:
        return []
    return [
        RULE.finding(
            "error",
            f"{len(lost)} tensors start with `model.`, and the MLA draft class finds none of them",
            [Seen("tensors without a taker", sorted(lost)[:20], "draft checkpoint")],
            "remove the leading `model.` from the tensor names of the checkpoint",
        )
    ]


RULE = StaticRule("E3P325", "MLA draft with prefixed names", PAGE, _check)
