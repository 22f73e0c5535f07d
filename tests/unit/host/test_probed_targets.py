"""The doctor's table of target classes says what the probe's own tables do."""

from __future__ import annotations

import pytest

from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.host.embedding_capture import EMBEDDING_CAPTURE, of_forward
from sglang_eagle3_probe.host.seams import SCHEDULER_SEAMS
from sglang_eagle3_probe.host.target_classes import CLASSES, OWN_FORWARD

RELEASES = [f"0.5.{patch}" for patch in range(9, 24)]
FORWARDS = {
    "LlamaForCausalLM": "llama:LlamaModel",
    "Llama4ForCausalLM": "llama4:Llama4Model",
    "Qwen2ForCausalLM": "qwen2:Qwen2Model",
    "Qwen2MoeForCausalLM": "qwen2_moe:Qwen2MoeModel",
    "Qwen3MoeForCausalLM": "qwen2_moe:Qwen2MoeModel",
    "DeepseekV2ForCausalLM": "deepseek_v2:DeepseekV2Model",
    "KimiK25ForConditionalGeneration": "deepseek_v2:DeepseekV2Model",
    "Glm4MoeForCausalLM": "glm4_moe:Glm4MoeModel",
    "GptOssForCausalLM": "gpt_oss:GptOssModel",
}


def forward_of(name: str, release: str) -> str:
    if name == "Qwen3ForCausalLM":
        own = conventions.release(release) >= (0, 5, 21)
        return "qwen3:Qwen3Model" if own else "qwen2:Qwen2Model"
    return FORWARDS[name]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", [n for n, row in CLASSES.items() if row.probed != "nothing"])
def test_both_ends_of_the_stack(name: str, release: str) -> None:
    if CLASSES[name].first > conventions.release(release):
        pytest.skip("the class has no setter there")
    row = of_forward(f"sglang.srt.models.{forward_of(name, release)}")
    assert row is not None
    faulty = any(f.boundary == 0 for f in conventions.known_faults(name, release))
    crashes = conventions.reach(name, release, 0, 32) == "crash"
    assert row.overwritten is None or faulty == row.overwritten.contains(release)
    assert (row.way(release) == "itself") == (not faulty and not crashes)
    if conventions.embedding_by_probe(name):
        assert row.way(release) is not None
    assert row.reaches_last(release) == (conventions.reach(name, release, 32, 32) == "captured")


def test_every_class_whose_setter_is_wrapped_is_known() -> None:
    wrapped = {
        seam.attribute.partition(".")[0]
        for seam in SCHEDULER_SEAMS
        if seam.name in ("layer_ids", "layer_ids_delegation")
    }
    probed = {name for name, row in CLASSES.items() if row.probed != "nothing"}
    assert probed - wrapped == {"Llama4ForCausalLM"}, "it inherits Llama's setter"
    assert wrapped <= probed


def test_forwards_of_the_table_are_those_of_the_classes() -> None:
    known = {f"sglang.srt.models.{inner}" for inner in FORWARDS.values()}
    others = {row.inner for row in EMBEDDING_CAPTURE} - known
    assert others == {
        "sglang.srt.models.qwen3:Qwen3Model",
        "sglang.srt.models.teleflm:TeleFLMModel",
    }
    for name in OWN_FORWARD:
        assert conventions.order_by_probe(name)
        assert not conventions.embedding_by_probe(name)
