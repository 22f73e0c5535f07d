"""E3P314: flags that change the forward and that SGLang does not read.

No draft class of 0.5.9 to 0.5.23 looks at them: ``llama_eagle3.py``, ``kimi_k25_eagle3.py``.
"""

from __future__ import annotations

from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class, since
from sglang_eagle3_probe.rules.static.draft_module import reads_fc_norm

PAGE = Page(
    checks="Flags of trainers that alter the draft's forward, at the top level or in "
    "`eagle_config`, and that SGLang does not read: `norm_before_residual`, "
    "`return_hidden_post_norm`, `eh_proj_before_attn`, `next_layer_regular: false`, "
    "`use_mtp_layernorm`; and `norm_output` on releases before 0.5.12 (MLA drafts: 0.5.13).",
    why="The served draft computes something else than the trained one. With "
    "`norm_before_residual` the residual of the first layer is the normed state; SGLang always "
    "carries the un-normed one. With `norm_output` unread the recurrence is pre-norm, so the first "
    "proposal is right and later ones fall.",
    evidence="The flag and its value in the draft's config.",
    fix='Retrain with `"norm_before_residual": false`, or serve with an engine that reads the '
    "flag; it cannot be folded into weights. For `return_hidden_post_norm` write "
    '`"norm_output": true` instead. For `norm_output` upgrade SGLang.',
    ignore="When the flag is in the config by accident and training did not use it.",
)
FIXES = {
    "norm_before_residual": "retrain with `norm_before_residual: false`, or patch the first "
    "draft layer to keep hidden_norm(h) as the residual; no flag of SGLang does it",
    "return_hidden_post_norm": 'write `"norm_output": true` at the top level of config.json '
    "(SGLang 0.5.12 and later; MLA drafts 0.5.13)",
    "eh_proj_before_attn": "retrain with `eh_proj_before_attn: false`; SGLang has no such "
    "projection",
    "use_mtp_layernorm": "retrain with `use_mtp_layernorm: false`; SGLang has no such norm",
    "norm_output": "upgrade SGLang: `pip install sglang>=0.5.13`",
}


def _places(situation: Situation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    nested = situation.eagle_config or {}
    for name in FIXES:
        if name in nested and name != "norm_output":
            found[f"eagle_config.{name}"] = nested[name]
        if name in situation.draft.config:
            found[name] = situation.draft.config[name]
    return found


def _check(situation: Situation) -> list[Result]:
    if not known_class(situation) and not situation.draft.config.get("speculators_model_type"):
        return []
    results: list[Result] = []
    for place, value in _places(situation).items():
        name = place.rpartition(".")[2]
        if not value or (name == "norm_output" and reads_fc_norm(situation)):
            continue
        posted = situation.draft.config.get("norm_output") and since(situation, "0.5.12")
        if name == "return_hidden_post_norm" and posted:
            continue
        results.append(
            RULE.finding(
                "error" if name in {"norm_before_residual", "norm_output"} else "warning",
                f"SGLang {situation.release} does not read `{name}`: the served draft computes "
                "another forward than the trained one",
                [Seen(place, value, key(situation, place))],
                FIXES[name],
            )
        )
    return results


RULE = StaticRule("E3P314", "flag that SGLang does not read", PAGE, _check)
