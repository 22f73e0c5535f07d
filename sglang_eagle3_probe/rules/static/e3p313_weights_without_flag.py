"""E3P313: norm weights or flags that this release, or this config, does not use.

``fc_norm``: built only under ``fc_norm``/``use_aux_norm``; llama from 0.5.12, MLA from 0.5.13.
``input_norm``: built only under ``norm_before_fc``; llama from 0.5.17, MLA in no release.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, is_mla, key, known_class, names_with
from sglang_eagle3_probe.rules.static.draft_module import (
    fc_norm_flag,
    norm_before_fc_flag,
    reads_fc_norm,
    reads_norm_before_fc,
)

PAGE = Page(
    checks="Tensors `fc_norm.*`, `aux_norm_*`, `input_norm.*` and their flags against what the "
    "draft class of this release builds.",
    why="The draft was trained with the states normed before `fc`. Without the norm `fc` sees "
    "values of another size, and acceptance falls to near one token; nothing is logged.",
    evidence="Tensor names, flags, and the first release that reads them.",
    fix='With the weights but without the flag: add `"fc_norm": true` or `"norm_before_fc": true` '
    "to the draft's config.json. On a release that does not know the flag: upgrade SGLang "
    "(`fc_norm`: 0.5.12, for MLA drafts 0.5.13; `norm_before_fc`: 0.5.17, not for MLA drafts).",
    ignore="Never, unless the tensors are left over from another model.",
)


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation):
        return []
    mla = is_mla(situation)
    families = (
        (
            "fc_norm",
            names_with(situation, "fc_norm.", "aux_norm_"),
            fc_norm_flag(situation),
            reads_fc_norm(situation),
            "0.5.13" if mla else "0.5.12",
        ),
        (
            "norm_before_fc",
            names_with(situation, "input_norm."),
            norm_before_fc_flag(situation),
            reads_norm_before_fc(situation),
            None if mla else "0.5.17",
        ),
    )
    results: list[Result] = []
    for flag, names, on, reads, first in families:
        if not names and not on:
            continue
        evidence = [
            Seen(flag, on, key(situation, flag)),
            Seen("tensors", names, "draft checkpoint"),
        ]
        if not reads:
            later = (
                f"upgrade SGLang: `pip install sglang>={first}`"
                if first
                else (
                    "serve it with an engine that has the norm, or train an MLA draft with "
                    '`"fc_norm": true`'
                )
            )
            results.append(
                RULE.finding(
                    "error",
                    f"SGLang {situation.release} does not know `{flag}` for this draft class: the "
                    "states reach `fc` without the norm of training",
                    evidence,
                    later,
                )
            )
        elif names and not on:
            results.append(
                RULE.finding(
                    "error",
                    f"the checkpoint has {names[0]}, but `{flag}` is not set: the norm is not "
                    "built and its weights are dropped",
                    evidence,
                    f'set `"{flag}": true` in the draft\'s config.json',
                )
            )
    return results


RULE = StaticRule("E3P313", "norm before fc is left out", PAGE, _check)
