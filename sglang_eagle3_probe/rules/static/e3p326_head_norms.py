"""E3P326: query and key norms that the Llama draft class does not have.

``llama_eagle3.py`` builds ``LlamaAttention`` of ``llama.py``, without q/k norms, 0.5.9 to 0.5.23.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import LLAMA, StaticRule, names_with, served_class, some

PAGE = Page(
    checks="Tensors `q_norm` and `k_norm` in a draft of the Llama class.",
    why="Drafts built on Qwen-3 attention norm queries and keys per head. SGLang's draft class has "
    "no such norm; the weights are dropped and attention works with other values.",
    evidence="Tensor names.",
    fix="Train the draft with Llama attention (`model_type: llama`, without `q_norm`/`k_norm`), or "
    "serve it with an engine whose draft class has the norms.",
    ignore="Never.",
)


def _check(situation: Situation) -> list[Result]:
    lost = names_with(situation, "q_norm.", "k_norm.") if served_class(situation) == LLAMA else []
    if not lost:
        return []
    return [
        RULE.finding(
            "error",
            f"SGLang {situation.release} drops {some(lost)}: its draft class has no query or key "
            "norm",
            [Seen("tensors without a taker", lost, "draft checkpoint")],
            "train the draft without `q_norm`/`k_norm` (`model_type: llama`), or serve it with an "
            "engine whose draft class has them",
        )
    ]


RULE = StaticRule("E3P326", "query and key norms dropped", PAGE, _check)
