"""``--json-model-override-args`` and the nested config of speculators."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_eagle3_probe.checkpoint.facts import CheckpointFacts, Situation
from sglang_eagle3_probe.checkpoint.overrides import override_args, with_overrides


def applied(release: str, text: str, **config: Any) -> Situation:
    facts = CheckpointFacts("x", {"hidden_size": 8, **config}, None)
    return with_overrides(Situation(facts, facts, release, {"json_model_override_args": text}))


def test_both_configs_change_and_the_draft_keeps_what_it_was() -> None:
    found = applied("0.5.23", '{"hidden_size": 16}')
    assert found.hidden == 16
    assert found.draft_hidden == 16
    assert found.draft.before_overrides == {"hidden_size": 8}


@pytest.mark.parametrize(
    ("release", "rope", "text"),
    [
        ("0.5.12.post1", {"factor": 2.0}, {"num_layers": 3}),
        ("0.5.17", {"factor": 2.0}, {"hidden_size": 4, "num_layers": 3}),
        ("0.5.23", {"rope_theta": 1e6, "factor": 2.0}, {"hidden_size": 4, "num_layers": 3}),
    ],
)
def test_blocks(release: str, rope: dict[str, Any], text: dict[str, Any]) -> None:
    found = applied(
        release,
        '{"rope_parameters": {"factor": 2.0}, "text_config": {"num_layers": 3}}',
        rope_parameters={"rope_theta": 1e6},
        text_config={"hidden_size": 4},
    )
    assert found.draft.config["rope_parameters"] == rope
    assert found.target.config["text_config"] == text


@pytest.mark.parametrize("text", ["", "x", "[]", "1", "[" * 5000, 3, None])
def test_what_is_no_object(text: Any) -> None:
    assert override_args({"json_model_override_args": text}) in (None, {})


@pytest.mark.parametrize(("release", "theta"), [("0.5.9", 5e5), ("0.5.22", None), ("0.5.23", 5e5)])
def test_a_rope_block_without_theta(release: str, theta: float | None) -> None:
    found = applied(release, '{"rope_scaling": {"factor": 2.0}}', rope_theta=5e5)
    assert found.draft.config.get("rope_theta") == theta


def test_applied_once() -> None:
    once = applied("0.5.23", '{"hidden_size": 16}')
    assert with_overrides(once) == once


def test_speculators_layer_config_is_read_whole() -> None:
    facts = CheckpointFacts(
        "x",
        {
            "architectures": ["Eagle3Speculator"],
            "draft_vocab_size": 100,
            "rms_norm_eps": None,
            "vocab_size": 5,
            "transformer_layer_config": {
                "model_type": "llama",
                "hidden_size": 8,
                "num_attention_heads": 2,
                "rope_theta": 5e5,
                "rms_norm_eps": 1e-5,
                "vocab_size": 6,
            },
        },
        None,
    )
    assert facts.model_type == "llama"
    assert facts.integer("hidden_size") == 8
    assert facts.config["rope_theta"] == 5e5
    assert facts.config["rms_norm_eps"] == 1e-5
    assert facts.integer("vocab_size") == 5
