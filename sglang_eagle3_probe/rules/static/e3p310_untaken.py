"""E3P310: tensors of the checkpoint that no parameter takes.

``models/llama_eagle3.py`` ``load_weights`` passes over a name it does not know without a word, in
0.5.9 to 0.5.23; ``models/kimi_k25_eagle3.py`` (0.5.12 to 0.5.23) logs a warning and goes on.
"""

from __future__ import annotations

import re

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, is_mla, since, some
from sglang_eagle3_probe.rules.static.draft_module import quantised, split, unsaid_quantisation

PAGE = Page(
    checks="Every tensor name of the draft's checkpoint against the parameters that the draft "
    "class of this SGLang release builds for this config. Families with a cause of their own "
    "(E3P313, E3P315, E3P316, E3P321, E3P324 to E3P326) are left to their rules.",
    why="SGLang skips names it does not know. Whatever those weights learned is missing in the "
    "served draft, and nothing fails.",
    evidence="Names in the safetensors headers; the class and release they were held against.",
    fix="Rename the tensors to the names SGLang takes: `fc.weight`, `norm.weight`, "
    "`lm_head.weight`, `embed_tokens.weight`, `midlayer.*` (or `layers.0.*` from 0.5.12). If the "
    "weight belongs to a part that the class does not have, the draft needs another engine or a "
    "patched class.",
    ignore="When the tensors belong to training only (optimiser state, unused heads).",
)
OWN_RULES = (
    "fc_norm",
    "aux_norm_",
    "input_norm.",
    ".bias",
    "q_norm",
    "k_norm",
    "rotary_emb.inv_freq",
)


def _has_own_rule(name: str, situation: Situation) -> bool:
    if any(part in name for part in OWN_RULES):
        return True
    layer = re.search(r"(?:^|\.)layers\.(\d{1,4})\.", name)
    if layer and (int(layer.group(1)) > 0 or not since(situation, "0.5.12")):
        return True
    if name.endswith("lm_head.weight") and situation.draft.config.get("tie_word_embeddings"):
        return True
    return is_mla(situation) and name.startswith("model.")


def _check(situation: Situation) -> list[Result]:
    _, left = split(situation)
    unsaid = unsaid_quantisation(situation)
    scales = unsaid.scales if unsaid is not None else ()  # E3P524
    names = [n for n in left if n not in scales and not _has_own_rule(n, situation)]
    if not names:
        return []
    if quantised(situation):
        return [
            RULE.unknown(
                f"the draft is quantised; whether its quantisation method takes {some(names)} "
                "cannot be told from names",
                "start the server with --enable-probe and read E3P301 of the report",
            )
        ]
    return [
        RULE.finding(
            "warning",
            f"SGLang {situation.release} drops {len(names)} tensors of the draft: {some(names)}",
            [
                Seen("tensors without a taker", names[:20], "draft checkpoint"),
                Seen("draft class", situation.draft_class, "models/ of this release"),
            ],
            "rename them to what the class takes (`midlayer.*`, `fc.weight`, `norm.weight`, "
            "`lm_head.weight`, `embed_tokens.weight`), or check that training alone needed them",
        )
    ]


RULE = StaticRule("E3P310", "draft tensors that nothing takes", PAGE, _check)
