"""``--json-model-override-args``: keys that SGLang writes over the target's config and the draft's.

``ModelConfig.from_server_args`` hands them to both (``configs/model_config.py``, read in 0.5.9,
0.5.10, 0.5.12.post1, 0.5.17, 0.5.21, 0.5.23); ``get_config`` applies them. Up to 0.5.12.post1 a
block replaces the block before it; later blocks that are configs of their own (``text_config``)
are merged, and in 0.5.23 (not yet in 0.5.22) rope blocks too. Under Transformers 5 (0.5.10 and
later) the rope block holds theta, ``rope_scaling`` is another name for ``rope_parameters``, and a
``rope_theta`` of its own changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Manner:
    """How a release applies the keys."""

    merged: frozenset[str]
    """Blocks that are merged with the one before; others are replaced whole."""
    one_rope_block: bool
    """Transformers 5: ``rope_scaling`` and ``rope_parameters`` are one block, theta within it."""


def manner(sglang: str) -> Manner:
    """Of a release; an unreadable one counts as the newest."""
    try:
        at = release(sglang)
    except ValueError:
        at = NEWEST_READ
    merged: frozenset[str] = CONFIG_BLOCKS if at >= (0, 5, 17) else frozenset()
    if at >= (0, 5, 23):
        merged |= ROPE_BLOCKS
    return Manner(merged, at >= (0, 5, 10))


def overridden(facts: CheckpointFacts, changes: Mapping[str, Any], how: Manner) -> CheckpointFacts:
    """The facts with these keys written over the config."""
    if not changes or facts.before_overrides is not None:
        return facts
    config = dict(facts.config)
    for key, value in changes.items():
        if key == "rope_theta" and how.one_rope_block:
            continue  # the block's own theta goes first, and every config has one
        if key in ROPE_BLOCKS and isinstance(value, Mapping) and how.one_rope_block:
            _write_rope(config, value, merge=key in how.merged)
            continue
        before = config.get(key)
        merge = key in how.merged and isinstance(before, Mapping)
        config[key] = {**before, **value} if merge and isinstance(value, Mapping) else value  # type: ignore[dict-item]
    return replace(facts, config=config, before_overrides=facts.config)


def _write_rope(config: dict[str, Any], value: Mapping[str, Any], *, merge: bool) -> None:
    """Theta lies within the block: a block that replaces it and names none loses theta."""
    before: Mapping[str, Any] = next(
        (config[k] for k in ROPE_BLOCKS if isinstance(config.get(k), Mapping)), {}
    )
    for key in ROPE_BLOCKS:
        config.pop(key, None)
    config["rope_parameters"] = {**before, **value} if merge else dict(value)
    if not merge:
        config.pop("rope_theta", None)


def with_overrides(situation: Situation) -> Situation:
    """Target and draft as SGLang sees them once the argument is applied."""
    changes = override_args(situation.arguments)
    if not changes:
        return situation
    how = manner(situation.release)
    return replace(
        situation,
        target=overridden(situation.target, changes, how),
        draft=overridden(situation.draft, changes, how),
    )
