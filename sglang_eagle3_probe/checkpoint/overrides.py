"""``--json-model-override-args``: keys that SGLang writes over the target's config and the draft's.

``ModelConfig.from_server_args`` hands them to both (``configs/model_config.py``, read in 0.5.9,
0.5.10, 0.5.12.post1, 0.5.17, 0.5.21, 0.5.23); ``get_config`` applies them. Up to 0.5.12.post1 a
block replaces the block before it; later blocks that are configs of their own (``text_config``) are
merged, and in 0.5.23 (not yet in 0.5.22) rope blocks too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import CheckpointFacts, Situation
from sglang_eagle3_probe.host.conventions import NEWEST_READ, release

ARGUMENT = "json_model_override_args"
CONFIG_BLOCKS = frozenset(
    {"text_config", "language_config", "llm_config", "vision_config", "thinker_config"}
)
ROPE_BLOCKS = frozenset({"rope_scaling", "rope_parameters"})


def override_args(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keys given; empty without the argument, None when it is no JSON object."""
    text = arguments.get(ARGUMENT)
    if text is None:
        return {}
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def overridden(
    facts: CheckpointFacts, changes: Mapping[str, Any], merged: frozenset[str]
) -> CheckpointFacts:
    """The facts with these keys written over the config; blocks named in ``merged`` are merged."""
    if not changes or facts.before_overrides is not None:
        return facts
    config = dict(facts.config)
    for key, value in changes.items():
        before = config.get(key)
        if key in merged and isinstance(value, Mapping) and isinstance(before, Mapping):
            value = {**before, **value}
        config[key] = value
    return replace(facts, config=config, before_overrides=facts.config)


def merged_blocks(sglang: str) -> frozenset[str]:
    """Blocks that this release merges; others it replaces whole."""
    try:
        at = release(sglang)
    except ValueError:
        at = NEWEST_READ
    if at >= (0, 5, 23):
        return CONFIG_BLOCKS | ROPE_BLOCKS
    return CONFIG_BLOCKS if at >= (0, 5, 17) else frozenset()


def with_overrides(situation: Situation) -> Situation:
    """Target and draft as SGLang sees them once the argument is applied."""
    changes = override_args(situation.arguments)
    if not changes:
        return situation
    merged = merged_blocks(situation.release)
    return replace(
        situation,
        target=overridden(situation.target, changes, merged),
        draft=overridden(situation.draft, changes, merged),
    )
