"""E3P327: ``norm_output`` of a draft that may have been trained without it.

SpecForge between 2026-07-19 and SpecForge#879 (2026-09-15) wrote ``norm_output: true`` while its
training recurrence was pre-norm. ``llama_eagle3.py`` from 0.5.12 and ``kimi_k25_eagle3.py`` from
0.5.13 hand on the post-norm state under the flag.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import REPLAY, StaticRule, known_class
from sglang_eagle3_probe.rules.static.draft_module import reads_fc_norm

PAGE = Page(
    checks="`norm_output: true` in a draft that speculators did not write.",
    why="SpecForge wrote the flag for two months while training with the pre-norm recurrence. The "
    "first proposal is then as good as in training and later ones fall off.",
    evidence="The key.",
    fix='Compare acceptance per position with `"norm_output": true` and `false`; keep the better.',
    ignore="When the trainer is another or newer than SpecForge#879 (September 2026).",
)


def _check(situation: Situation) -> list[Result]:
    config = situation.draft.config
    if not config.get("norm_output") or not known_class(situation):
        return []
    if config.get("speculators_model_type") or not reads_fc_norm(situation):
        return []
    return [
        RULE.unknown(
            "`norm_output` is true; SpecForge wrote it for a while although training carried the "
            "pre-norm state",
            f"{REPLAY}, with the norm and without",
        )
    ]


RULE = StaticRule("E3P327", "norm_output may not be as trained", PAGE, _check)
