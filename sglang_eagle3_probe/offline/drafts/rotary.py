"""Rotary angles as SGLang's ``layers/rotary_embedding`` (0.5.23) makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.checkpoint.rope import DEFAULT_THETA

KINDS = ("default", "linear", "dynamic", "yarn", "llama3")


@dataclass(frozen=True)
class RopeSettings:
    """What decides the angles.

    ``size``: rotated dimensions of a head. ``pairs``: rotates (even, odd) neighbours instead of the
    two halves. ``latent``: scaled as for latent attention, where every scaling is DeepSeek's yarn.
    ``positions``: ``max_position_embeddings``.
    """

    size: int
    theta: float = DEFAULT_THETA
    scaling: Mapping[str, Any] | None = None
    positions: int = 8192
    pairs: bool = False
    latent: bool = False

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        if self.scaling is None:
            return "default"
        found = self.scaling.get("rope_type", self.scaling.get("type"))
        if found is None or found == "default":
            return "default"
        if self.latent or found == "deepseek_yarn":
            return "yarn"
        return str(found)

    def number(self, key: str, default: float) -> float:
        """A number of the scaling block."""
        found = (self.scaling or {}).get(key)
        return default if found is None or isinstance(found, (bool, str)) else float(found)


class Rotary:
    """Rotates queries and keys.

    Raises:
        CheckpointError: the scaling is of a kind that is not computed here.
    """

    def __init__(self, settings: RopeSettings) -> None:
        if settings.kind not in KINDS:
            raise CheckpointError(
                f"the draft's rotary scaling is {shown(settings.kind)}; {', '.join(KINDS)} can be "
                "computed here. Fix: none; the draft's accuracy cannot be replayed."
            )
        self.settings = settings
        self.scale = 1.0
        self.divisor = 1.0
        self.frequencies = self._frequencies()

    def _frequencies(self) -> torch.Tensor:
        s = self.settings
        theta = s.theta
        if s.kind == "dynamic":
            # SGLang stretches for the longest context at once, whatever the request's length.
            exponent = s.size / (s.size - 2)
            factor = s.number("factor", 1.0)
            alpha = s.number("alpha", 0.0)
            stretch = alpha if alpha else factor * factor - (factor - 1)
            theta = theta * stretch**exponent
        plain = 1.0 / theta ** (torch.arange(0, s.size, 2, dtype=torch.float32) / s.size)
        if s.kind == "linear":
            self.divisor = s.number("factor", 1.0)
        if s.kind == "llama3":
            return self._llama3(plain)
        if s.kind == "yarn":
            return self._yarn(plain)
        return plain

    def _llama3(self, plain: torch.Tensor) -> torch.Tensor:
        s = self.settings
        low, high = s.number("low_freq_factor", 1.0), s.number("high_freq_factor", 4.0)
        original = s.number("original_max_position_embeddings", s.positions)
        factor = s.number("factor", 1.0)
        waves = 2 * math.pi / plain
        blend = (original / waves - low) / (high - low) if low != high else torch.zeros_like(plain)
        between = (1 - blend) * plain / factor + blend * plain
        slow = torch.where(waves > original / low, plain / factor, between)
        return torch.where(waves < original / high, plain, slow)

    def _yarn(self, plain: torch.Tensor) -> torch.Tensor:
        s = self.settings
        factor = s.number("factor", 1.0)
        original = s.number("original_max_position_embeddings", s.positions)
        scaling = s.scaling or {}

        def turns(rotations: float) -> float:
            """Dimension whose wave turns so often within the original context."""
            return (s.size * math.log(original / (rotations * 2 * math.pi))) / (
                2 * math.log(s.theta)
            )

        low, high = turns(s.number("beta_fast", 32.0)), turns(s.number("beta_slow", 1.0))
        if s.latent or scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, s.size - 1)
        if low == high:
            high += 0.001
        ramp = ((torch.arange(s.size // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
        kept = (1 - ramp) * s.number("extrapolation_factor", 1.0)
        one, all_dim = s.number("mscale", 1.0), s.number("mscale_all_dim", 0.0)
        if s.latent or ("mscale" in scaling and "mscale_all_dim" in scaling):
            self.scale = yarn_magnitude(factor, one) / yarn_magnitude(factor, all_dim)
        else:
            self.scale = yarn_magnitude(factor, 1.0)
        self.scale *= s.number("attn_factor", 1.0)
        return plain / factor * (1 - kept) + plain * kept

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """``x`` [T, heads, dim] at ``positions`` [T]; dimensions beyond ``size`` stay."""
        size = self.settings.size
        angles = (positions.to(torch.float32) / self.divisor)[:, None] * self.frequencies
        cos = (angles.cos() * self.scale)[:, None].to(x.dtype)
        sin = (angles.sin() * self.scale)[:, None].to(x.dtype)
        turned, rest = x[..., :size], x[..., size:]
        if self.settings.pairs:
            first, second = turned[..., 0::2], turned[..., 1::2]
        else:
            first, second = turned.chunk(2, dim=-1)
        # Pairs come out as halves: queries and keys are permuted alike, so scores stay the same.
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def yarn_magnitude(factor: float, weight: float) -> float:
    """Yarn's correction of the size of queries and keys."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def latent_attention_scale(settings: RopeSettings) -> float:
    """What SGLang multiplies the softmax scale of latent attention with."""
    scaling = settings.scaling
    if settings.kind == "default" or scaling is None:
        return 1.0
    if not scaling.get("apply_yarn_scaling", True) or not scaling.get("apply_scale", True):
        return 1.0
    magnitude = yarn_magnitude(settings.number("factor", 1.0), settings.number("mscale_all_dim", 0))
    return magnitude * magnitude
