"""E3P118: the same list means other layers in other releases.

deepseek_v2 (and Kimi-K2.5) added 1 to every list up to 0.5.12 and only to lists that start with 1
from 0.5.13; gpt_oss takes a list that reaches N as it is from 0.5.17.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import lookup, sglang_boundaries
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import MEASURE, asked_of_files, fix_for

PAGE = Page(
    checks="Whether another release of SGLang makes other boundaries of the same list for this "
    "target class.",
    why="A draft whose training states came from SGLang (SpecForge, TorchSpec, NeMo) saw what that "
    "release captured. Served by a release that reads the list otherwise, every slot is one layer "
    "off.",
    evidence="The list and what it means on both sides of the change.",
    fix='Find out which release made the training states, then write `"eagle_config": '
    '{"eagle_aux_hidden_state_layer_ids": [...]}` so that this release captures the same '
    "boundaries; the finding names the numbers.",
    ignore="When the states came from Transformers and the list is in the unit this release reads.",
)


def _check(situation: Situation) -> list[Result]:
    found = asked_of_files(situation)
    row = lookup(situation.target_class)
    if found is None or row is None or found.ids is None or -1 in found.ids:
        return []
    others: dict[tuple[int, ...], str] = {}
    for since, _ in row.rule:
        release = ".".join(map(str, max(since, row.first)))
        made = sglang_boundaries(situation.target_class, release, found.ids, found.num_layers)
        if isinstance(made, tuple) and made != found.boundaries:
            others.setdefault(made, release)
    if not others:
        return []
    made, release = next(iter(others.items()))
    return [
        RULE.unknown(
            f"SGLang {situation.release} makes boundaries {list(found.boundaries)} of "
            f"{list(found.ids)} on {situation.target_class}; a release that reads it as "
            f"{release} does makes {list(made)}",
            f"the release that produced the training states; or {MEASURE}. "
            f"For {list(made)} {fix_for(situation, made, found.num_layers)}",
        )
    ]


RULE = StaticRule("E3P118", "the list means other layers in other releases", PAGE, _check)
