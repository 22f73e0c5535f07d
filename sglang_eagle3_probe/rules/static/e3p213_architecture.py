"""E3P213: an architecture name that SGLang's registry does not hold.

The EAGLE-3 draft classes are ``LlamaForCausalLMEagle3`` (0.5.9 to 0.5.23) and, from 0.5.12,
``Eagle3DeepseekV2ForCausalLM``. Plain ``LlamaForCausalLM`` is served as an ordinary Llama.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    LLAMA,
    MLA,
    StaticRule,
    eagle3_served,
    key,
    plain_llama,
    since,
)

PAGE = Page(
    checks="`architectures[0]` of the draft against the two EAGLE-3 draft classes of this release.",
    why="A name that SGLang does not know stops the server or falls back to Transformers; plain "
    "`LlamaForCausalLM` loads an ordinary Llama model without `fc`.",
    evidence="The key.",
    fix='Write `"architectures": ["LlamaForCausalLMEagle3"]` into the draft\'s config.json '
    '(speculators files need `"model_type": "llama"` and the keys of `transformer_layer_config` at '
    "the top level too).",
    ignore="When an external package registers the class (SGLANG_EXTERNAL_MODEL_PACKAGE).",
)
RENAMED = ("eagle3", "speculator", "peagle")


def _check(situation: Situation) -> list[Result]:
    name = situation.draft_class
    if not eagle3_served(situation) or name == LLAMA:
        return []
    if name == MLA and since(situation, "0.5.12"):
        return []
    config = situation.draft.config
    plain = plain_llama(situation)
    known = any(part in (name or "").lower() for part in RENAMED)
    if name is not None and not plain and not known:
        return []
    fix = 'write `"architectures": ["LlamaForCausalLMEagle3"]` into the draft\'s config.json'
    layers = situation.draft.integer("num_hidden_layers")
    if layers is not None and layers > 4:
        fix += (
            f", after checking that its {layers} layers are not the target's: most drafts have "
            '`"num_hidden_layers": 1`'
        )
    if "peagle" in (name or "").lower():
        fix = (
            "serve it with an engine that knows parallel drafts; SGLang would need a draft trained "
            'as `"architectures": ["LlamaForCausalLMEagle3"]`'
        )
    if name == MLA:
        fix = "upgrade SGLang to 0.5.12 or later, which has this class under `models/`"
    if config.get("transformer_layer_config"):
        fix += (
            ', with `"model_type": "llama"` and the keys of `transformer_layer_config` at the top '
            "level"
        )
    return [
        RULE.finding(
            "error",
            "the draft's config has no `architectures`"
            if name is None
            else f"{name} is an ordinary Llama to SGLang: no fc, no aux states"
            if plain
            else f"SGLang {situation.release} has no class {name}",
            [Seen("architectures", config.get("architectures"), key(situation, "architectures"))],
            fix,
        )
    ]


RULE = StaticRule("E3P213", "draft architecture that SGLang does not know", PAGE, _check)
