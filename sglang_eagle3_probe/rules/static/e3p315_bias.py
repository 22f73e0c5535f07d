"""E3P315: biases that are dropped, or built and not filled.

``llama_eagle3.py`` (0.5.9 to 0.5.23): ``fc`` has a bias only under ``config.bias``; ``qkv_proj`` is
replaced with ``bias=False`` whatever the config says; ``o_proj`` has one under ``attention_bias``
or ``bias`` (``LlamaDecoderLayer`` in ``llama.py``); the MLP never has one.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, seen_key, some
from sglang_eagle3_probe.rules.static.draft_module import missing, quantised, split

PAGE = Page(
    checks="Bias tensors of the draft against `bias` and `attention_bias` in its config and "
    "against what the class builds.",
    why="A trained bias without a taker is lost; a bias built without a tensor adds whatever "
    "memory held.",
    evidence="Names ending in `.bias`, and the two flags.",
    fix='For `fc.bias`: set `"bias": true` only if `o_proj.bias` is in the checkpoint too, since '
    "the same flag builds it. Biases of q, k, v and the MLP have no place in SGLang: retrain with "
    '`"attention_bias": false`.',
    ignore="When the tensors are all zero.",
)


def _check(situation: Situation) -> list[Result]:
    if quantised(situation):
        return []
    _, left = split(situation)
    dropped = [name for name in left if name.endswith(".bias")]
    matrices, _ = missing(situation)
    unfilled = [name for name in matrices if name.endswith(".bias")]
    results: list[Result] = []
    if dropped:
        fc_only = all(name.removeprefix("model.") == "fc.bias" for name in dropped)
        results.append(
            RULE.finding(
                "error",
                f"SGLang {situation.release} drops {some(dropped)}: the class builds no such bias",
                [
                    Seen("biases without a taker", dropped, "draft checkpoint"),
                    seen_key(situation, "bias"),
                    seen_key(situation, "attention_bias"),
                ],
                'set `"bias": true` in config.json and add zero `midlayer.self_attn.o_proj.bias`, '
                "which the same flag builds"
                if fc_only
                else 'retrain with `"attention_bias": false`; no flag of SGLang keeps these biases',
            )
        )
    elif situation.draft.config.get("attention_bias") and situation.draft.tensors is None:
        results.append(
            RULE.unknown(
                "`attention_bias` is true, and SGLang builds the draft's q, k, v without bias "
                "whatever it says",
                "point doctor at the folder with the weights: `.bias` tensors of q, k, v decide",
            )
        )
    if unfilled:
        results.append(
            RULE.finding(
                "error",
                f"the config asks for {some(unfilled)}, and the checkpoint has none: the bias "
                "holds whatever memory held",
                [
                    Seen("biases without a tensor", unfilled, "draft checkpoint"),
                    Seen("bias", situation.draft.config.get("bias"), key(situation, "bias")),
                    seen_key(situation, "attention_bias"),
                ],
                'set `"bias": false` and `"attention_bias": false` in the draft\'s config.json',
            )
        )
    return results


RULE = StaticRule("E3P315", "bias dropped or made up", PAGE, _check)
