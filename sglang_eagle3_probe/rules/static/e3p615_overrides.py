"""E3P615: ``--json-model-override-args`` reaches the draft as well.

``ModelConfig.from_server_args`` applies the same keys to target and draft: read in
``configs/model_config.py`` of 0.5.9, 0.5.10, 0.5.12.post1, 0.5.17, 0.5.21 and 0.5.23. No release
has an argument of that kind for the draft alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.overrides import ARGUMENT, ROPE_BLOCKS, override_args
from sglang_eagle3_probe.checkpoint.rope import rope_of
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, key, since, some

PAGE = Page(
    checks="Which keys of `--json-model-override-args` change the draft's config, and whether they "
    "change how it computes. All other rules judge both configs with these keys applied.",
    why="The argument is meant for the target, and SGLang writes the same keys over the draft's "
    "config. A longer rope or another layer count then holds for the draft too: it is served with "
    "other positions than it was trained with, or with layers that it does not have. From 0.5.10 "
    "to 0.5.22 a rope block without `rope_theta` also loses theta, for both models; and from "
    "0.5.10 `rope_theta` alone changes nothing.",
    evidence="The argument; the draft's own values beside those in force.",
    fix="Write the change into the target's config.json and leave `--json-model-override-args` "
    "out; then the draft keeps its own.",
    ignore="When the draft was trained with these very values.",
)
COMPUTES = frozenset({
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "hidden_act",
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "tie_word_embeddings",
})  # fmt: skip
"""Keys that both draft classes read when they are built."""


def _value(config: Mapping[str, Any], name: str) -> Any:
    """A key's value; the rope block under either of its names."""
    if name in ROPE_BLOCKS:
        return next((config[key] for key in sorted(ROPE_BLOCKS) if config.get(key)), None)
    return config.get(name)


def _check(situation: Situation) -> list[Result]:
    changes = override_args(situation.arguments)
    flag = "--" + ARGUMENT.replace("_", "-")
    if changes is None:
        return [
            RULE.finding(
                "error",
                f"{flag} is no JSON object: the server does not start",
                [Seen(flag, situation.argument(ARGUMENT), "arguments")],
                f"""give it as `{flag} '{{"key": value}}'`""",
            )
        ]
    own = situation.draft.before_overrides
    if not changes or own is None:
        return []
    config = situation.draft.config
    before, now = rope_of(own), rope_of(config)
    moved = [name for name in changes if _value(config, name) != _value(own, name)]
    reads_new = since(situation, "0.5.10")
    theta = before.theta(reads_new=reads_new), now.theta(reads_new=reads_new)
    if "rope_theta" in changes and reads_new:
        return [
            RULE.finding(
                "warning",
                f"rope_theta in {flag} changes nothing: SGLang {situation.release} reads theta "
                f"from the rope block, which keeps {theta[1]:g} for the draft",
                [
                    Seen("theta in force", theta[1], key(situation, "rope_theta")),
                    Seen(flag, situation.argument(ARGUMENT), "arguments"),
                ],
                'write it as `"rope_theta"` into the config.json that it is meant for',
            )
        ]
    if not moved:
        return []
    if theta[0] != theta[1] and "rope_theta" not in str(changes):
        return [
            RULE.finding(
                "error",
                f"{flag} replaces the rope block and names no rope_theta: SGLang "
                f"{situation.release} takes {theta[1]:g} for the draft instead of {theta[0]:g}, "
                "and the same for the target",
                [
                    Seen("theta, own and in force", list(theta), key(situation, "rope_theta")),
                    Seen(flag, situation.argument(ARGUMENT), "arguments"),
                ],
                'write the change into the target\'s config.json, or add `"rope_theta"` to the '
                f"block in `{flag}`",
            )
        ]
    computes = [name for name in moved if name in COMPUTES]
    return [
        RULE.finding(
            "warning" if computes else "note",
            f"{flag} holds for the draft as well: it changes the draft's {some(moved)}"
            + ("" if computes else ", which its class does not compute with"),
            [
                Seen(f"{name}, own and in force", [_value(own, name), _value(config, name)],
                     key(situation, name))
                for name in moved
            ],
            f"write the change into the target's config.json and leave `{flag}` out",
        )
    ]  # fmt: skip


RULE = StaticRule("E3P615", "overrides meant for the target reach the draft", PAGE, _check)
