"""E3P217: EAGLE3 given a draft of another kind: a whole model, or a multi-token-prediction layer.

With EAGLE3 the worker asks the draft for ``hot_token_id`` (``eagle_worker*.py``, 0.5.9 to 0.5.23),
which the two EAGLE-3 classes alone have: anything else stops with an AttributeError, or earlier.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import lookup
from sglang_eagle3_probe.host.target_classes import WITHOUT_SETTER
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    StaticRule,
    eagle3_served,
    eagle3_signs,
    key,
    served_class,
)

PAGE = Page(
    checks="The draft's architecture against classes that are whole language models, or layers for "
    "multi-token prediction (names ending in NextN or MTP), while the algorithm is EAGLE3.",
    why="These classes take no aux hidden states and have no `fc`. SGLang stops when it asks them "
    "for the draft vocabulary.",
    evidence="The two keys.",
    fix="For a model with its own prediction layers start with `--speculative-algorithm EAGLE`; "
    "for an EAGLE-3 draft give its folder, and write "
    '`"architectures": ["LlamaForCausalLMEagle3"]` where its trainer wrote another name.',
    ignore="When an external package registers the class (SGLANG_EXTERNAL_MODEL_PACKAGE).",
)


def _check(situation: Situation) -> list[Result]:
    name = served_class(situation)
    if name is None or not eagle3_served(situation):
        return []
    layer = name.endswith(("NextN", "MTP"))
    if not layer and lookup(name) is None and name not in WITHOUT_SETTER:
        return []
    signs = eagle3_signs(situation)
    rows = situation.draft.integer("draft_vocab_size")
    if rows is not None:
        signs.append(Seen("draft_vocab_size", rows, key(situation, "draft_vocab_size")))
    what = "a layer for multi-token prediction" if layer else "a whole model"
    fix = (
        'write `"architectures": ["LlamaForCausalLMEagle3"]` into the draft\'s config.json if its '
        "layer is built like that class"
        if signs
        else "start with `--speculative-algorithm EAGLE` if the model brings its own prediction "
        "layers; otherwise give the folder of an EAGLE-3 draft"
    )
    seen = [
        Seen("draft architecture", name, key(situation, "architectures")),
        Seen("algorithm", situation.algorithm, "--speculative-algorithm"),
        *signs,
    ]
    if situation.algorithm is None and not signs:
        return [
            RULE.unknown(
                f"{name} is {what} to SGLang and no EAGLE-3 draft; with EAGLE3 the server "
                "would stop",
                'add `--args "..."` with the flags of your server command, or give the folder of '
                "the EAGLE-3 draft",
            )
        ]
    return [
        RULE.finding(
            "error",
            f"{name} is {what} to SGLang and no EAGLE-3 draft: the server stops when it asks for "
            "the draft vocabulary",
            seen,
            fix,
        )
    ]


RULE = StaticRule("E3P217", "EAGLE3 given a draft of another kind", PAGE, _check)
