"""E3P114: the list is not ascending.

Capture follows the loop over layers in every class (0.5.9 to 0.5.23), so slots arrive ascending.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import order_by_probe
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import (
    evidence,
    in_force,
    patched_serving,
    probe_on,
    reads_list,
)

PAGE = Page(
    checks="Whether the list of layer ids is ascending.",
    why="SGLang concatenates in the order of the layers. Trainers that concatenate in the order of "
    "the list (SpecForge, NeMo, AngelSlim, TorchSpec on HF) trained `fc` for another order of "
    "blocks. On DeepSeek-V2/V3 an unsorted list also fails the test for output ids.",
    evidence="The list and the boundaries in force.",
    fix="Start the server with `--enable-probe`, which keeps the order of the list; on "
    "DeepSeek-V2/V3 and Kimi-K2.5 `sglang-eagle3-probe patch-source` does so in SGLang's own "
    "files. Or sort the list and permute the column blocks of `fc.weight` alike.",
    ignore="When the trainer concatenated ascending whatever the list said (ModelOpt, "
    "speculators).",
)


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    if found is None or found.ids is None or reads_list(situation):
        return []
    if list(found.ids) == sorted(found.ids):
        return []
    sort = "sort the list and permute the column blocks of `fc.weight` alike"
    return [
        RULE.finding(
            "warning",
            f"{found.list_text} is not ascending, and SGLang concatenates ascending: the blocks of "
            "`fc` meet other layers if training kept the order of the list",
            evidence(situation, found),
            f"{sort}: the probe does not know {situation.target_class}"
            if probe_on(situation)
            else f"{patched_serving(situation)}, or {sort}"
            if order_by_probe(situation.target_class)
            else f"{sort}: the probe does not know {situation.target_class}",
        )
    ]


RULE = StaticRule("E3P114", "layer ids are not ascending", PAGE, _check)
