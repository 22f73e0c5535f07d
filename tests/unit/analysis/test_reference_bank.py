"""Published accept lengths: looked up by target and exactly the same setting, never across."""

from __future__ import annotations

import pytest

from sglang_eagle3_probe.analysis.reference_bank import Found, bank, look_up


def found(path: str, architecture: str = "", setting: tuple[int, int, int] = (3, 1, 4)) -> Found:
    steps, topk, tokens = setting
    result = look_up(path, architecture, steps=steps, topk=topk, draft_tokens=tokens)
    assert result is not None
    return result


def test_every_number_is_possible_and_has_a_source() -> None:
    rows = [(t, p) for t in bank().targets for p in t.published]
    assert len(rows) > 50
    for target, published in rows:
        steps, topk, tokens = map(int, published.setting.split("/"))
        assert tokens > topk * bool(topk > 1)
        assert bank().sources[published.source].startswith("https://")
        assert published.accept_lengths, target.name
        for length in published.accept_lengths.values():
            assert 1 < length <= steps + 1
    assert {p.source for _, p in rows} == bank().sources.keys()


def test_patterns_are_unique() -> None:
    patterns = [t.pattern for t in bank().targets]
    assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("moonshotai/Kimi-K2.5", "Kimi-K2.5"),
        ("/data/models/Kimi-K2.5-NVFP4/", "Kimi-K2.5"),
        ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2-Instruct"),
        ("/hub/models--moonshotai--Kimi-K2.6/snapshots/0a1b2c", "Kimi-K2.6"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "Qwen3-Coder-30B-A3B-Instruct"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_target_by_name(path: str, target: str) -> None:
    result = found(path)
    assert result.how == "name"
    assert {r.target for r in result.references} == {target}
    assert all(r.ceiling == 4 for r in result.references)
    lengths = [r.accept_length for r in result.references]
    assert lengths == sorted(lengths)
    assert result.least.of_ceiling == lengths[0] / 4


def test_settings_are_never_crossed() -> None:
    shallow, deep = found("Qwen3-30B-A3B"), found("Qwen3-30B-A3B", setting=(5, 1, 6))
    assert shallow.setting == "3/1/4"
    assert deep.greatest.accept_length > 4
    assert deep.greatest.ceiling == 6
    assert look_up("Qwen3-30B-A3B", "", steps=4, topk=1, draft_tokens=5) is None
    # A target that is known is not answered with relatives under that setting.
    path, architecture = "Kimi-K2.5", "DeepseekV3ForCausalLM"
    assert look_up(path, architecture, steps=5, topk=1, draft_tokens=6) is None


def test_relatives_are_named_as_such() -> None:
    result = found("/models/target", "DeepseekV3ForCausalLM")
    assert result.how == "architecture"
    assert {r.target for r in result.references} == {"Kimi-K2-Instruct"}
    assert look_up("/models/target", "UnknownModel", steps=3, topk=1, draft_tokens=4) is None
    assert look_up("", "", steps=3, topk=1, draft_tokens=4) is None
