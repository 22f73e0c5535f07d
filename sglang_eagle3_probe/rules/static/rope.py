"""Rotary settings as a config in either Transformers layout gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglang_eagle3_probe.rules.static.base import block, number

DEFAULT_THETA = 10000.0


@dataclass(frozen=True)
class Rope:
    """Both places a theta can stand in, and the scaling."""

    new_theta: float | None
    """``rope_parameters.rope_theta`` (Transformers 5)."""
    old_theta: float | None
    """``rope_theta`` (Transformers 4)."""
    new_layout: bool
    scaling: Mapping[str, Any]

    def theta(self, *, reads_new: bool) -> float:
        """What SGLang takes: ``rope_parameters`` first where the release reads it."""
        if reads_new and self.new_theta is not None:
            return self.new_theta
        return self.old_theta if self.old_theta is not None else DEFAULT_THETA

    @property
    def named(self) -> bool:
        return self.new_theta is not None or self.old_theta is not None

    @property
    def kind(self) -> str:
        found = self.scaling.get("rope_type", self.scaling.get("type"))
        return found if isinstance(found, str) else "default"


def rope_of(config: Mapping[str, Any]) -> Rope:
    new = block(config, "rope_parameters")
    return Rope(
        new_theta=number(new.get("rope_theta")),
        old_theta=number(config.get("rope_theta")),
        new_layout=bool(new),
        scaling=new or block(config, "rope_scaling"),
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
