"""E3P522: a quantised draft.

A draft's own ``quantization_config`` wins over an incompatible ``--quantization`` (``ModelConfig``,
read in 0.5.23). ``fc`` of the Llama draft class is a plain ``nn.Linear`` in every release and takes
no scales; the MLA draft refuses a quantised ``kv_b_proj``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import (
    LLAMA,
    StaticRule,
    is_mla,
    served_class,
)
from sglang_eagle3_probe.rules.static.draft_module import quantisation_key, quantised

PAGE = Page(
    checks="A `quantization_config` in the draft's config: stored dtypes of `fc.weight` and, for "
    "MLA drafts, `kv_b_proj.weight`.",
    why="The Llama draft class has an unquantised `fc`: packed or 8-bit weights are copied without "
    "their scales. The MLA class stops on a `kv_b_proj` that is not a float.",
    evidence="The block, and dtypes in the safetensors headers.",
    fix='Leave `fc` (MLA: `kv_b_proj`) out of quantisation (`"ignore"` / '
    '`"modules_to_not_convert"` in `"quantization_config"`) and export the draft again.',
    ignore="Never when the finding names a dtype.",
)
FLOATS = {"BF16", "F16", "F32", "F64"}


def _check(situation: Situation) -> list[Result]:
    if not quantised(situation):
        return []
    method = (situation.draft.quantization or {}).get("quant_method")
    names: tuple[str, ...] = ("fc.weight",) if served_class(situation) == LLAMA else ()
    if is_mla(situation):
        names = ("layers.0.self_attn.kv_b_proj.weight", "midlayer.self_attn.kv_b_proj.weight")
    results: list[Result] = []
    for name in names:
        info = situation.draft.tensor(name)
        if info is None or info.dtype in FLOATS:
            continue
        results.append(
            RULE.finding(
                "error",
                f"{name} is stored as {info.dtype}, and the draft class takes only a float there",
                [
                    Seen("dtype", info.dtype, f"draft checkpoint: {name}"),
                    Seen("quant_method", method, quantisation_key(situation)),
                ],
                f'leave `{name}` out in `"quantization_config"` and export the draft again',
            )
        )
    return results


RULE = StaticRule("E3P522", "quantised draft weights that the class cannot take", PAGE, _check)
