"""E3P312: a norm is switched on in the config and its weights are not there.

``fc_norm``/``use_aux_norm``: ``llama_eagle3.py`` from 0.5.12, ``kimi_k25_eagle3.py`` from 0.5.13.
``norm_before_fc``: ``llama_eagle3.py`` from 0.5.17.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, some
from sglang_eagle3_probe.rules.static.draft_module import missing

PAGE = Page(
    checks="`fc_norm` (or `use_aux_norm`) and `norm_before_fc` in the draft's config against the "
    "tensors `fc_norm.<i>.weight` and `input_norm.weight`.",
    why="The norm is built with weights of one and applied to the target's states. A draft trained "
    "without it, or with trained weights that were lost, gets other inputs than in training.",
    evidence="The flag, and the tensor names that are missing.",
    fix='If training had no such norm, remove `"fc_norm"` / `"norm_before_fc"` from config.json. '
    "If it had one, export `fc_norm.0.weight` ... or `input_norm.weight` into the checkpoint.",
    ignore="When the trained norm weights really are ones.",
)


def _check(situation: Situation) -> list[Result]:
    _, norms = missing(situation)
    results: list[Result] = []
    for flag, start in (("fc_norm", "fc_norm."), ("norm_before_fc", "input_norm.")):
        lost = [name for name in norms if name.startswith(start)]
        if not lost:
            continue
        results.append(
            RULE.finding(
                "error",
                f"`{flag}` is on, but the checkpoint has no {some(lost)}: the norm runs with "
                "weights of one",
                [
                    Seen(flag, True, key(situation, flag)),
                    Seen("missing tensors", lost, "draft checkpoint"),
                ],
                f'remove `"{flag}"` from the draft\'s config.json if training had no such norm; '
                f"otherwise export {some([f'`{n}`' for n in lost])}",
            )
        )
    return results


RULE = StaticRule("E3P312", "norm switched on without its weights", PAGE, _check)
