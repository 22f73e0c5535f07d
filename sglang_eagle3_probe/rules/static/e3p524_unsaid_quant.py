"""E3P524: quantised weights in a draft that does not say so.

Without a block SGLang builds ordinary parameters (``_parse_quant_hf_config``, read in 0.5.23: the
keys ``quantization_config`` and ``compression_config``, then ``hf_quant_config.json``).
``default_weight_loader`` and the linear layers' loaders copy an 8-bit float into them, which
converts the number and leaves its scale out; packed whole numbers do not fit in shape.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, known_class, some
from sglang_eagle3_probe.rules.static.draft_module import unsaid_quantisation

PAGE = Page(
    checks="Stored dtypes of the draft's weights, and tensors of scales, while neither its "
    "config.json nor `hf_quant_config.json` names a quantisation.",
    why="SGLang copies 8-bit floats into ordinary parameters and drops their scales, so that every "
    "weight is wrong by its scale and the draft proposes noise. Packed weights do not fit and "
    "loading stops.",
    evidence="Dtypes and names in the safetensors headers.",
    fix='Export the draft again with its `"quantization_config"` in config.json, or in bfloat16.',
    ignore="Never with scales in the checkpoint.",
)


def _check(situation: Situation) -> list[Result]:
    found = unsaid_quantisation(situation)
    if found is None or not known_class(situation):
        return []
    small, packed = found.float8, found.packed
    tensors = situation.draft.tensors or {}
    evidence = [
        Seen("dtypes", {n: tensors[n].dtype for n in (small or packed)[:6]}, "draft checkpoint"),
        Seen("scales", found.scales[:6], "draft checkpoint"),
        Seen("quantization_config", None, key(situation, "quantization_config")),
    ]
    outcome = (
        f"SGLang copies {some(small, 3)} without scales, so that every weight is wrong"
        if small
        else f"{some(packed, 3)} do not fit the parameters and loading stops"
    )
    return [
        RULE.finding(
            "error",
            f"the draft's weights are quantised and its config does not say so: {outcome}",
            evidence,
            'export the draft again with its `"quantization_config"` in config.json, or in '
            "bfloat16",
        )
    ]


RULE = StaticRule("E3P524", "quantised draft that does not say so", PAGE, _check)
