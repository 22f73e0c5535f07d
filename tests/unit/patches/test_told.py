"""Telling an inner model its boundaries: by the list, by flags of its layers, by the copy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sglang_eagle3_probe.patches import embedding_copy, told
from sglang_eagle3_probe.patches.layer_plan import Requested, TargetFacts, no_such_layer

FLAG = "_is_layer_to_capture"
LAYERS = 4


def model(module: str, name: str) -> Any:
    """A target whose inner model has SGLang's name and four layers."""

    def forward(self: Any) -> None:
        raise AssertionError

    inner_class = type(name, (), {"forward": forward, "__module__": f"sglang.srt.models.{module}"})
    inner = inner_class()
    inner.layers = [SimpleNamespace() for _ in range(LAYERS)]
    inner.layers_to_capture = []
    return SimpleNamespace(model=inner, capture_aux_hidden_states=True)


def flagged(target: Any) -> list[int]:
    return [i for i, layer in enumerate(target.model.layers) if getattr(layer, FLAG, False)]


def test_the_list_alone_where_no_layer_is_asked() -> None:
    target = model("llama", "LlamaModel")
    told.tell(target, [3, 0], by_copy=False)
    assert told.told(target) == [3, 0]
    assert told.captured(target) == [0, 3]
    assert not any(hasattr(layer, FLAG) for layer in target.model.layers)


def test_flags_follow_the_list_and_are_taken_back() -> None:
    target = model("qwen2_moe", "Qwen2MoeModel")
    setattr(target.model.layers[2], FLAG, True)  # what SGLang's own setter left
    told.tell(target, [3, 1], by_copy=False)
    assert flagged(target) == [1, 3]
    told.withdraw(target)
    assert flagged(target) == []


def test_a_negative_id_flags_a_layer_from_the_end() -> None:
    target = model("qwen2_moe", "Qwen2MoeModel")
    target.model.layers_to_capture = [-1, 2]
    assert told.captured(target) == [2, LAYERS - 1]
    assert told.told(target) == [-1, 2]


def test_boundary_0_is_left_to_the_copy() -> None:
    target = model("qwen2", "Qwen2Model")
    told.tell(target, [3, 0, 1], by_copy=True)
    assert target.model.layers_to_capture == [3, 1]
    assert told.told(target) == [3, 0, 1]
    told.withdraw(target)
    assert embedding_copy.asked_of(target.model) is None


def test_an_own_forward_is_not_taken_for_the_one_that_was_read() -> None:
    target = model("llama", "LlamaModel")
    assert told.capture_of(target) is not None

    def forward(self: Any) -> None:
        raise AssertionError

    own = type("Other", (type(target.model),), {"forward": forward, "__module__": "elsewhere"})
    target.model.__class__ = own
    assert told.forward_of(target.model) == "elsewhere:Other"
    assert told.capture_of(target) is None
    inherits = type("Heir", (type(model("llama", "LlamaModel").model),), {})
    target.model.__class__ = inherits
    assert told.capture_of(target) is not None


def test_an_id_past_the_layers_is_said_in_a_sentence() -> None:
    facts = TargetFacts("Qwen3MoeForCausalLM", 8)
    text = no_such_layer(Requested((2, 3, 7), "eagle_config"), facts, "would have stopped")
    assert "7 is the state after the last layer" in text
    assert "Stock SGLang would have stopped" in text
    fine = no_such_layer(Requested((1, 2, 3), "eagle_config"), facts, "would have stopped")
    assert "name a layer that Qwen3MoeForCausalLM with 8 layers does not have" in fine
    assert "Fix: use ids from -1 to 6" in fine
