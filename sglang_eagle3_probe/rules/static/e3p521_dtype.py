"""E3P521: draft and target are loaded in different dtypes.

``--dtype auto`` takes each model's own config (``_get_and_verify_dtype``, read in 0.5.23); states
and the shared embedding come in the target's dtype, and no draft class casts them. A draft that
names none, or float32, becomes float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.base import Seen as _Seen
from sglang_eagle3_probe.rules.static.base import LLAMA, MLA, StaticRule, key, target_key

PAGE = Page(
    checks="`dtype` / `torch_dtype` of both configs when `--dtype` is not given.",
    why="The target's states and embedding reach the draft in the target's dtype. A draft in "
    "another one fails in its first matrix product, or rounds states it was not trained on.",
    evidence="The keys of both configs, `--dtype`.",
    fix='Start with `--dtype bfloat16` (or the dtype of the target), or set `"torch_dtype"` of the '
    "draft alike.",
    ignore="Never; both models can share one dtype.",
)
HALF = {"bfloat16", "float16"}


def _dtype(config: Mapping[str, Any]) -> str | None:
    for name in ("dtype", "torch_dtype"):
        found = config.get(name)
        if isinstance(found, str):
            return found.removeprefix("torch.")
    return None


def _check(situation: Situation) -> list[Result]:
    given = situation.argument("dtype", "auto")
    written = _dtype(situation.draft.config)
    own = situation.draft_class in {LLAMA, MLA}  # other names keep their dtype elsewhere
    draft = "float16" if own and written in (None, "float32") else written
    target = _dtype(situation.target.text_config) or _dtype(situation.target.config)
    if given not in ("auto", None) or draft == target or not {draft, target} <= HALF:
        return []
    return [
        RULE.finding(
            "warning",
            f"with --dtype auto the target runs in {target} and the draft in {draft}"
            + ("" if written == draft else f" (its config says {written or 'nothing'})"),
            [
                _Seen("dtype", written, key(situation, "torch_dtype")),
                _Seen("dtype", target, target_key(situation, "torch_dtype")),
            ],
            f'start with `--dtype {target}`, or set `"torch_dtype": "{target}"` in the draft\'s '
            "config.json",
        )
    ]


RULE = StaticRule("E3P521", "draft and target dtypes differ", PAGE, _check)
