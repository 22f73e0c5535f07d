"""E3P316: the number of draft layers.

``llama_eagle3.py`` refuses anything but one layer to 0.5.11 and builds ``num_hidden_layers`` from
0.5.12; ``kimi_k25_eagle3.py`` refuses anything but one in every release.
"""

from __future__ import annotations

import re

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    StaticRule,
    is_mla,
    known_class,
    seen_key,
    since,
    tensor_names,
)

PAGE = Page(
    checks="`num_hidden_layers` of the draft against the layers in its checkpoint and against what "
    "the class of this release accepts.",
    why="Before 0.5.12, and for MLA drafts always, more than one layer stops the server. From "
    "0.5.12 a number too small drops trained layers, and one too large adds layers of "
    "uninitialised memory.",
    evidence="The key, and the layer numbers in tensor names.",
    fix='Set `"num_hidden_layers"` in the draft\'s config.json to the number of layers in the '
    "checkpoint; for several layers use SGLang 0.5.12 or later.",
    ignore="Never.",
)


def _stored(situation: Situation) -> int | None:
    found: set[int] = set()
    for name in tensor_names(situation):
        if "midlayer" in name:
            found.add(0)
        match = re.search(r"(?:^|\.)layers\.(\d{1,4})\.", name)
        if match:
            found.add(int(match.group(1)))
    return max(found) + 1 if found else None


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation):
        return []
    named, stored = situation.draft.integer("num_hidden_layers"), _stored(situation)
    evidence = [
        seen_key(situation, "num_hidden_layers"),
        Seen("layers in the checkpoint", stored, "tensor names"),
    ]
    single = is_mla(situation) or not since(situation, "0.5.12")
    if named is not None and single and named != 1:
        return [
            RULE.finding(
                "error",
                f"SGLang {situation.release} refuses this draft: {situation.draft_class} takes "
                f"one layer and the config says {named}",
                evidence,
                'set `"num_hidden_layers": 1` if the checkpoint holds one layer'
                if stored == 1
                else "upgrade SGLang: `pip install sglang>=0.5.12`"
                if not is_mla(situation)
                else 'train a draft with `"num_hidden_layers": 1`',
            )
        ]
    if named is None or stored is None or named == stored:
        return []
    return [
        RULE.finding(
            "error",
            f"the config says {named} draft layers and the checkpoint holds {stored}: "
            + ("the surplus is dropped" if stored > named else "the rest is uninitialised memory"),
            evidence,
            f'set `"num_hidden_layers": {stored}` in the draft\'s config.json',
        )
    ]


RULE = StaticRule("E3P316", "number of draft layers", PAGE, _check)
