"""E3P523: a low-precision KV cache that the draft shares.

The draft's KV cache takes ``--kv-cache-dtype`` unless ``--speculative-draft-kv-cache-dtype`` is
given (``model_runner.py``, read in 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule

PAGE = Page(
    checks="`--kv-cache-dtype` with 8 bits or fewer, without a dtype of the draft's own.",
    why="The draft inherits the type. It has no scales of its own, and an fp4 cache has been seen "
    "to take most of the acceptance.",
    evidence="The arguments.",
    fix="Compare with `--kv-cache-dtype auto`; where the release has it, give the draft its own: "
    "`--speculative-draft-kv-cache-dtype bfloat16`.",
    ignore="fp8 with no difference in acceptance.",
)


def _check(situation: Situation) -> list[Result]:
    found = situation.argument("kv_cache_dtype")
    if not isinstance(found, str) or not found.startswith(("fp8", "fp4", "nvfp4", "mxfp4")):
        return []
    if situation.argument("speculative_draft_kv_cache_dtype"):
        return []
    return [
        RULE.finding(
            "note" if found.startswith("fp8") else "warning",
            f"the draft's KV cache is {found} too, without scales of its own",
            [Seen("--kv-cache-dtype", found, "arguments")],
            "compare with `--kv-cache-dtype auto`, or give the draft "
            "`--speculative-draft-kv-cache-dtype bfloat16` where the release has it",
        )
    ]


RULE = StaticRule("E3P523", "draft KV cache in low precision", PAGE, _check)
