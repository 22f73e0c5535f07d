"""Steps, topk and draft tokens that come into force.

``_handle_speculative_decoding`` (``server_args.py``, 0.5.9 to 0.5.12) and ``_handle_eagle_family``
(``arg_groups/speculative_hook.py``, read in 0.5.23): with no step count the three are chosen by the
target's architecture; with topk 1 the draft tokens become steps + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.static.base import whole

WIDE = {"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"}
"""Targets for which SGLang chooses 5 steps, topk 4, 8 tokens; all others get 3, 1, 4."""


@dataclass(frozen=True)
class SpecArguments:
    """None: not given."""

    steps: int | None
    topk: int | None
    tokens: int | None
    settled: SpecArguments | None = None
    """What a running server has made of them."""

    def in_force(self, target_class: str | None) -> SpecArguments:
        if self.settled is not None:
            return self.settled
        if self.steps is None:
            return SpecArguments(5, 4, 8) if target_class in WIDE else SpecArguments(3, 1, 4)
        if self.topk == 1:
            return SpecArguments(self.steps, 1, self.steps + 1)
        return self


def given(situation: Situation) -> SpecArguments:
    """As asked for, with what is in force where a server runs; that alone where nobody knows."""
    held = _numbers(situation, situation.arguments)
    if situation.live is None:
        return held
    if situation.asked is None:
        return replace(held, settled=held)
    return replace(_numbers(situation, situation.asked), settled=held)


def _numbers(situation: Situation, arguments: Mapping[str, Any]) -> SpecArguments:
    read = replace(situation, arguments=arguments)
    return SpecArguments(
        whole(read, "speculative_num_steps"),
        whole(read, "speculative_eagle_topk"),
        whole(read, "speculative_num_draft_tokens"),
    )


def eagle_family(situation: Situation) -> bool:
    """Whether arguments were given that start EAGLE or EAGLE3, without adaptive steps."""
    named = situation.algorithm in {"EAGLE", "EAGLE3", "NEXTN"}
    return named and not situation.argument("speculative_adaptive")
