"""E3P321: layers after the first have no ``hidden_norm``.

``llama_eagle3.py`` from 0.5.12: layers with id 1 and more norm their input with ``hidden_norm`` and
leave ``input_layernorm`` unused. speculators and vLLM use ``input_layernorm`` there.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import LLAMA, StaticRule, served_class, some
from sglang_eagle3_probe.rules.static.draft_module import missing, quantised, split

PAGE = Page(
    checks="Drafts of several layers: whether each layer after the first has a `hidden_norm`, and "
    "the matrices the class builds.",
    why="SGLang norms the input of later layers with `hidden_norm`; trainers that write "
    "`input_layernorm` there leave it at ones.",
    evidence="Tensor names of the later layers.",
    fix="Copy `layers.<i>.input_layernorm.weight` to `layers.<i>.hidden_norm.weight` for every "
    "layer after the first.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    if served_class(situation) != LLAMA or quantised(situation):
        return []
    _, norms = missing(situation)
    taken, _ = split(situation)
    lost = [
        name
        for name in norms
        if name.endswith(".hidden_norm.weight")
        and not name.startswith("layers.0.")
        and name.replace("hidden_norm", "input_layernorm") in taken
    ]
    if not lost:
        return []
    return [
        RULE.finding(
            "error",
            f"{some(lost)} is missing: SGLang norms the input of that layer with ones, and the "
            "trained `input_layernorm` there is not used",
            [Seen("missing tensors", lost, "draft checkpoint")],
            "copy `layers.<i>.input_layernorm.weight` to `layers.<i>.hidden_norm.weight` for every "
            "layer after the first",
        )
    ]


RULE = StaticRule("E3P321", "later draft layers without hidden_norm", PAGE, _check)
