"""E3P511: the draft's maximum position is below the server's context length.

The worker sets the draft's context length to the target's (``eagle_worker*.py`` 0.5.9 to 0.5.23);
``ModelConfig._derive_context_length`` raises a ``ValueError`` when that is more than the draft's
config allows, unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set (read in 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.rope import context_lengths
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import LLAMA, MLA, StaticRule, key, target_key, whole

PAGE = Page(
    checks="The context length derived from the draft's config against `--context-length`, or "
    "against the target's own when the flag is not given.",
    why="SGLang refuses to start, and names an environment variable. With it the server runs, "
    "and beyond the draft's trained positions acceptance falls towards one token.",
    evidence="`max_position_embeddings` of both configs, the argument.",
    fix="Start with `--context-length` at most the draft's length; or, if the draft was trained on "
    'longer text, raise `"max_position_embeddings"` in its config.json. '
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 only lifts the check.",
    ignore="When requests stay short and you set the variable knowingly.",
)
DEFAULTS = {"llama": 2048, "kimi_k2": 4096, "deepseek_v3": 4096}
"""What the config class of a model type supplies when the key is missing (Transformers 5)."""


def _check(situation: Situation) -> list[Result]:
    draft = context_lengths(situation.draft.config)
    named = whole(situation, "context_length")
    target = context_lengths(situation.target.text_config)
    if draft is None or (named is None and target is None):
        return []
    if situation.draft.integer("max_position_embeddings") is None:
        default = DEFAULTS.get(situation.draft.model_type or "")
        if default is None or situation.draft_class not in {LLAMA, MLA}:
            return []
        draft = (default, default)
    if named is None and situation.target.integer("max_position_embeddings") is None:
        return []
    server = named if named is not None else (target or (0, 0))[0]
    if server <= draft[1]:
        return []
    return [
        RULE.finding(
            "error",
            f"the draft allows {draft[1]} positions and the server's context length is {server}: "
            "start-up is refused, or with SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 the draft "
            "runs past what it was trained for",
            [
                Seen("positions of the draft", draft[1], key(situation, "max_position_embeddings")),
                Seen("--context-length", named, "arguments"),
                Seen(
                    "max_position_embeddings",
                    situation.target.integer("max_position_embeddings"),
                    target_key(situation, "max_position_embeddings"),
                ),
            ],
            f"start with `--context-length {draft[1]}`; if the draft was trained on longer text, "
            f'set `"max_position_embeddings": {server}` in its config.json',
        )
    ]


RULE = StaticRule("E3P511", "draft positions end before the server's context", PAGE, _check)
