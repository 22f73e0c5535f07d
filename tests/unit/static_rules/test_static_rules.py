"""Every static rule speaks where it should, and is quiet elsewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from unit.static_rules.cases import CASES
from unit.static_rules.situations import ARGUMENTS, DRAFT, MLA_DRAFT, TARGET, situation

from sglang_eagle3_probe.rules.base import Finding, Result
from sglang_eagle3_probe.rules.registry import RULES as TRACE_RULES
from sglang_eagle3_probe.rules.static import registry
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.registry import RULES, judge

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3, 10**30, 1e308, "", "x", [], [None], ["a", 1], {}, {"a": []}, [-1, 2, 2],
)  # fmt: skip
KEYS = sorted(
    {*DRAFT, *TARGET, "eagle_config", "rope_parameters", "rope_scaling", "sliding_window", "bias"}
    | {"layer_types", "target_hidden_size", "num_aux_hidden_states", "quantization_config"}
    | {"eagle_aux_hidden_state_layer_ids", "aux_hidden_states_layer_ids", "text_config", "dtype"}
    | {"num_attention_heads", "head_dim", "json_model_override_args"}
    | {"norm_output", "fc_norm", "attention_bias", "transformer_layer_config", "q_lora_rank"}
)
EXACT = re.compile(r"`[^`]+`")
RELEASES = ("0.5.9", "0.5.11", "0.5.12.post1", "0.5.13", "0.5.16", "0.5.17", "0.5.23", "0.6.0")


def severity(result: Result) -> str:
    return result.severity if isinstance(result, Finding) else "unknown"


def of(code: str, results: list[Result]) -> list[Result]:
    return [result for result in results if result.code == code]


@pytest.mark.parametrize(
    ("code", "expected", "changes"),
    CASES,
    ids=[f"{code}-{expected}-{i}" for i, (code, expected, _) in enumerate(CASES)],
)
def test_rule(code: str, expected: str, changes: dict[str, Any]) -> None:
    rule = registry.find(code)
    assert rule is not None
    found = of(code, judge(situation(**changes)))
    if expected == "quiet":
        assert found == []
        return
    assert expected in {severity(result) for result in found}
    assert not any("the rule itself failed" in result.message for result in found)
    for result in found:
        if isinstance(result, Finding):
            assert result.evidence
            assert EXACT.search(result.fix), "a fix names an exact config edit, tensor or flag"


@pytest.mark.parametrize("release", RELEASES)
def test_clean_pair(release: str) -> None:
    found = [result for result in judge(situation(release=release)) if result.code != "E3P612"]
    assert found == []


@pytest.mark.parametrize("release", RELEASES)
def test_clean_config_without_weights(release: str) -> None:
    found = judge(situation(release=release, config_only=True))
    assert [result for result in found if result.code != "E3P612"] == []


def test_every_rule_has_cases_that_fire() -> None:
    fires = {code for code, expected, _ in CASES if expected != "quiet"}
    assert fires == {rule.code for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_page_and_fix(rule: StaticRule) -> None:
    assert EXACT.search(rule.page.fix), "the page's fix names an exact config edit, tensor or flag"
    for part in ("checks", "why", "evidence", "fix", "ignore"):
        assert len(getattr(rule.page, part)) > 5
    assert registry.find(rule.code.lower()) is rule


def test_codes_are_free_and_unique() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
    assert not set(codes) & {rule.code for rule in TRACE_RULES}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("side", ["draft", "target", "arguments"])
def test_odd_values_break_no_rule(side: str, name: str) -> None:
    for value in ODD:
        for release in ("0.5.9", "0.5.23"):
            for extra in ({}, MLA_DRAFT):
                changes: dict[str, Any] = {"draft": dict(extra), "release": release}
                changes[side] = {**changes.get(side, {}), name: value}
                for result in judge(situation(**changes)):
                    assert "the rule itself failed" not in result.message, (value, result)


@pytest.mark.parametrize("name", [*sorted(ARGUMENTS), "quantization", "dtype"])
def test_odd_arguments_break_no_rule(name: str) -> None:
    for value in ODD:
        for result in judge(situation(arguments={name: value})):
            assert "the rule itself failed" not in result.message, (value, result)


def test_a_rule_that_fails_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> list[Result]:
        raise ZeroDivisionError("x")

    bad = StaticRule("E3P999", "bad", RULES[0].page, broken)
    monkeypatch.setattr(registry, "RULES", (bad, *RULES))
    found = judge(situation(ids=[2, 16, 29]))
    assert {result.code for result in found} == {"E3P111", "E3P999"}
