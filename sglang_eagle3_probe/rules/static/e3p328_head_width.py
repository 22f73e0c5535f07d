"""E3P328: heads that do not divide the hidden size.

``LlamaConfig`` of Transformers 5.6 and later (pinned by SGLang 0.5.11 to 0.5.23) raises; before
(4.57.1 and 5.3.0, pinned by 0.5.9 and 0.5.10) a missing ``head_dim`` becomes the quotient rounded
down, as in ``models/llama.py``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, since

PAGE = Page(
    checks="Whether `num_attention_heads` divides `hidden_size`, in the draft's config and in the "
    "target's.",
    why="For `model_type` llama Transformers refuses such a config, even with `head_dim` given, "
    "and SGLang 0.5.11 and later cannot start. Without `head_dim` older releases, and other model "
    "types, round the width of a head down, and the weights do not fit.",
    evidence="The keys, `model_type` and the release.",
    fix="Write the head count of training into config.json. If it really does not divide the "
    'hidden size, `"head_dim"` must be given and `"model_type"` must be one whose config allows '
    "it, such as qwen3.",
    ignore="Never.",
)
ROUNDED = frozenset({"llama", "mistral", "qwen2", "qwen2_moe"})
"""Model types whose head width is the quotient unless ``head_dim`` is given."""


def _check(situation: Situation) -> list[Result]:
    strict = since(situation, "0.5.11")
    results: list[Result] = []
    for side, facts in (("draft", situation.draft), ("target", situation.target)):
        hidden, heads = facts.integer("hidden_size"), facts.integer("num_attention_heads")
        kind = facts.text_config.get("model_type", facts.model_type)
        if not isinstance(kind, str) or kind not in ROUNDED:
            continue
        if not hidden or not heads or heads < 0 or hidden % heads == 0:
            continue
        refused = kind == "llama" and strict
        if not refused and facts.integer("head_dim") is not None:
            continue
        results.append(
            RULE.finding(
                "error",
                f"the {side}'s hidden_size {hidden} is no multiple of its {heads} heads: "
                + (
                    "Transformers refuses the config and the server does not start"
                    if refused
                    else f"each head is taken as {hidden // heads} wide, rounded down, and "
                    "weights of another width do not fit"
                ),
                [
                    Seen(name, facts.text(name), f"{side} {facts.config_file}: {name}")
                    for name in ("hidden_size", "num_attention_heads", "head_dim", "model_type")
                ],
                f'write the {side}\'s own `"num_attention_heads"` into its config.json',
            )
        )
    return results


RULE = StaticRule("E3P328", "heads do not divide the hidden size", PAGE, _check)
