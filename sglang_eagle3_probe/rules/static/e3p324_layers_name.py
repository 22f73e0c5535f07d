"""E3P324: ``layers.0.*`` on a release that only knows ``midlayer.*``.

``llama_eagle3.py`` to 0.5.11 builds the attribute ``midlayer`` and maps no names; from 0.5.12 it
builds ``layers`` and maps ``midlayer`` to ``layers.0``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    LLAMA,
    StaticRule,
    served_class,
    since,
    tensor_names,
)

PAGE = Page(
    checks="Whether the draft layer's tensors are called `layers.0.*` on SGLang 0.5.11 or earlier.",
    why="Those releases know the layer as `midlayer`. The whole decoder layer is dropped and "
    "serves uninitialised memory.",
    evidence="Tensor names.",
    fix="Rename `layers.0.*` to `midlayer.*` in the checkpoint, or upgrade SGLang to 0.5.12.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if served_class(situation) != LLAMA or since(situation, "0.5.12"):
        return []
    lost = [n for n in tensor_names(situation) if n.removeprefix("model.").startswith("layers.0.")]
    if not lost:
        return []
    return [
        RULE.finding(
            "error",
            f"SGLang {situation.release} drops all {len(lost)} tensors of `layers.0`: it knows the "
            "draft layer as `midlayer`",
            [Seen("tensors without a taker", sorted(lost)[:20], "draft checkpoint")],
            "rename `layers.0.*` to `midlayer.*` in the checkpoint, or upgrade SGLang to 0.5.12 or "
            "later",
        )
    ]


RULE = StaticRule("E3P324", "draft layer under a name this release does not know", PAGE, _check)
