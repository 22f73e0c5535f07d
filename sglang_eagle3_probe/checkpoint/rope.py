"""Rotary settings as a config in either Transformers layout gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import block, number

DEFAULT_THETA = 10000.0


@dataclass(frozen=True)
class Rope:
    """All places a theta can stand in, and both blocks.

    Transformers 5 (SGLang from 0.5.10) takes ``rope_scaling`` for another name of
    ``rope_parameters``: where it is not empty it replaces the other block as a whole, theta
    included (``convert_rope_params_to_dict``, run in 5.19). A theta in the block goes before
    one beside it.
    """

    new_theta: float | None
    """``rope_parameters.rope_theta`` (Transformers 5)."""
    scaling_theta: float | None
    """``rope_scaling.rope_theta``."""
    old_theta: float | None
    """``rope_theta`` (Transformers 4)."""
    parameters: Mapping[str, Any]
    """``rope_parameters``."""
    old_scaling: Mapping[str, Any]
    """``rope_scaling``."""

    @property
    def scaling(self) -> Mapping[str, Any]:
        """The block in force where both names are read."""
        return self.old_scaling or self.parameters

    def theta(self, *, reads_new: bool) -> float:
        """What SGLang takes; ``reads_new``: the release knows ``rope_parameters``."""
        inner = self.scaling_theta if self.old_scaling else self.new_theta
        if reads_new and inner is not None:
            return inner
        return self.old_theta if self.old_theta is not None else DEFAULT_THETA

    @property
    def named(self) -> bool:
        thetas = (self.new_theta, self.scaling_theta, self.old_theta)
        return any(theta is not None for theta in thetas)

    @property
    def kind(self) -> str:
        return kind_of(self.scaling)


def kind_of(scaling: Mapping[str, Any]) -> str:
    """The type of a rope block."""
    found = scaling.get("rope_type", scaling.get("type"))
    return found if isinstance(found, str) else "default"


def rope_of(config: Mapping[str, Any]) -> Rope:
    """The rotary settings of a config."""
    parameters, scaling = block(config, "rope_parameters"), block(config, "rope_scaling")
    return Rope(
        new_theta=number(parameters.get("rope_theta")),
        scaling_theta=number(scaling.get("rope_theta")),
        old_theta=number(config.get("rope_theta")),
        parameters=parameters,
        old_scaling=scaling,
    )


def context_lengths(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Smallest and largest context length that SGLang may derive from this config.

    ``get_context_length`` takes the first of five keys times the scaling factor, which counts only
    without ``original_max_position_embeddings`` and for other types than llama3. Whether
    ``rope_scaling`` is still seen under Transformers 5 decides between the two.
    """
    for name in (
        "max_sequence_length",
        "seq_length",
        "max_seq_len",
        "model_max_length",
        "max_position_embeddings",
    ):
        value = number(config.get(name))
        if value is not None and value > 0:
            break
    else:
        value = 2048.0
    rope = rope_of(config)
    factor = number(rope.scaling.get("factor")) or 1.0
    if "original_max_position_embeddings" in rope.scaling or rope.kind == "llama3":
        factor = 1.0
    both = (int(value), int(value * factor))
    return min(both), max(both)
