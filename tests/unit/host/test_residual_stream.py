"""The residual stream off a layer's arguments, as releases before and after 0.5.21 pass it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from sglang_eagle3_probe.host.residual_stream import (
    OWED_MARK,
    LayerArguments,
    at_attention,
    attention_of,
    entering,
)

HIDDEN, RESIDUAL = torch.ones(2, 3), torch.full((2, 3), 2.0)


def test_arguments_by_name_however_they_are_passed() -> None:
    def forward(
        positions: Any, hidden_states: Any, forward_batch: Any, residual: Any = None
    ) -> None:
        pass

    names = LayerArguments(forward)
    assert names.get((1, 2, 3, 4), {}, "residual") == 4
    assert names.get((1, 2, 3), {}, "residual") is None
    assert names.get((1,), {"hidden_states": 5}, "hidden_states") == 5
    assert names.get((1, 2), {}, "other") is None


def test_both_are_passed_until_0_5_20() -> None:
    assert entering(HIDDEN, RESIDUAL, SimpleNamespace()) == (HIDDEN, RESIDUAL)
    assert entering(HIDDEN, None, SimpleNamespace()) == (HIDDEN, None)


def test_a_sum_that_is_left_to_the_next_layer_is_not_whole() -> None:
    owed = HIDDEN.clone()
    setattr(owed, OWED_MARK, True)
    assert entering(owed, RESIDUAL, None) is None


def stream(pending: Any, residual: Any = RESIDUAL) -> SimpleNamespace:
    return SimpleNamespace(residual_stream=SimpleNamespace(pending=pending, residual=residual))


def pending(owed: Any) -> SimpleNamespace:
    return SimpleNamespace(value=HIDDEN, owed=owed, update=SimpleNamespace(is_plain_add=True))


def test_the_stream_is_in_the_batch_from_0_5_21() -> None:
    assert entering(HIDDEN, None, stream(None)) == (HIDDEN, None)
    assert entering("handle", None, stream(pending(None))) == (HIDDEN, RESIDUAL)


def test_what_is_still_owed_is_taken_when_sglang_has_summed_it() -> None:
    assert entering("handle", None, stream(pending("sum"))) is None
    assert at_attention(HIDDEN, stream(pending("sum"))) is None
    whole = HIDDEN + RESIDUAL
    assert at_attention(HIDDEN, stream(None, residual=whole)) is whole
    assert at_attention(HIDDEN, stream(None, residual=whole[:1])) is None
    assert at_attention(HIDDEN, SimpleNamespace()) is None


def test_attention_by_any_name() -> None:
    assert attention_of(SimpleNamespace(attention=3)) == 3
    assert attention_of(SimpleNamespace()) is None
