"""E3P520: the draft inherits the target's quantisation method.

Without ``--speculative-draft-model-quantization`` the draft gets the value of ``--quantization``;
``unquant`` opts out (``server_args.py`` 0.5.9, ``arg_groups/serving_hook.py`` 0.5.23). The MLA
draft class drops ``modelopt_fp4``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, is_mla, key
from sglang_eagle3_probe.rules.static.draft_module import quantised

PAGE = Page(
    checks="`--quantization` without `--speculative-draft-model-quantization`, while the draft's "
    "checkpoint is not quantised.",
    why="SGLang applies the target's method to the draft. Online methods quantise a draft that was "
    "trained in bf16; methods for packed checkpoints do not find their tensors.",
    evidence="The two arguments and the draft's config.",
    fix="Start with `--speculative-draft-model-quantization unquant`.",
    ignore="When the draft shall be quantised online with the target's method.",
)


def _check(situation: Situation) -> list[Result]:
    method = situation.argument("quantization")
    if not isinstance(method, str) or situation.argument("speculative_draft_model_quantization"):
        return []
    if quantised(situation) or (is_mla(situation) and method == "modelopt_fp4"):
        return []
    return [
        RULE.finding(
            "warning",
            f"the draft is not quantised, and SGLang loads it with the target's method {method}",
            [
                Seen("--quantization", method, "arguments"),
                Seen("--speculative-draft-model-quantization", None, "arguments"),
                Seen("quantization_config", None, key(situation, "quantization_config")),
            ],
            "start with `--speculative-draft-model-quantization unquant`",
        )
    ]


RULE = StaticRule("E3P520", "draft inherits the target's quantisation", PAGE, _check)
