"""The trainer's accuracies: read strictly, turned into a curve, and held against rounds."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_probe.analysis.acceptance import Acceptance, from_outcomes
from sglang_eagle3_probe.analysis.prediction import (
    MOST_BYTES,
    Comparison,
    Prediction,
    PredictionError,
    compare,
    parse,
)

MODELS = Path(__file__).parents[2] / "fixtures" / "models"


def prediction(*accuracy: float, **more: Any) -> Prediction:
    return parse(json.dumps({"accuracy": list(accuracy), **more}).encode(), "f.json")


def acceptance(*conditional: float, rounds: int = 10_000) -> Acceptance:
    """Rounds with these conditional rates."""
    outcomes: Counter[tuple[int, int]] = Counter()
    steps, left = len(conditional), rounds
    for position, rate in enumerate(conditional):
        right = round(left * rate)
        outcomes[steps, position] += left - right
        left = right
    outcomes[steps, steps] += left
    return from_outcomes(outcomes, requests=10)


def compared(made: Prediction, seen: Acceptance, **how: Any) -> Comparison:
    found = compare(made, seen, **how)
    assert found is not None
    return found


def test_by_product_and_by_survival() -> None:
    made = prediction(0.8, 0.5, 0.5)
    product, survival = made.by_product, made.by_survival
    assert product is not None
    assert product.unconditional == pytest.approx((0.8, 0.4, 0.2))
    assert product.conditional == pytest.approx((0.8, 0.5, 0.5))
    assert product.length(3) == pytest.approx(2.4)
    assert product.length(1) == pytest.approx(1.8)
    assert survival is not None
    assert survival.unconditional == (0.8, 0.5, 0.5)
    assert survival.conditional == pytest.approx((0.8, 0.625, 1.0))
    assert made.expected.reading == "product"
    assert prediction(0.5, 0.6).by_survival is None  # shares of all steps right cannot rise


def test_the_fixtures_file() -> None:
    path = MODELS / "deepseek-draft-embed" / "trainer_accuracy.json"
    made = parse(path.read_bytes(), path.name)
    assert made.accuracy == (0.8329, 0.8361, 0.8211)
    assert made.joint == (0.8329, 0.7057, 0.6052)
    assert made.positions == 8128
    assert made.expected.reading == "survival"
    assert made.expected.length(3) == pytest.approx(1 + 0.8329 + 0.7057 + 0.6052)


def test_joint_alone_and_zeros() -> None:
    made = parse(b'{"joint": [0.5, 0.0, 0.0]}', "f")
    assert made.by_product is None
    assert made.expected.conditional == (0.5, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"{" * 100_000, "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[0.8, 0.7]", "it holds a list"),
        (b"null", "it holds a NoneType"),
        (b"{}", "neither accuracy nor joint"),
        (b'{"accuracy": null}', "neither accuracy nor joint"),
        (b'{"accuracy": []}', "is not a list of 1 to 64 numbers"),
        (b'{"accuracy": "0.8"}', "is not a list"),
        (b'{"accuracy": [true]}', "holds True"),
        (b'{"accuracy": ["0.8"]}', "holds 0.8, not a share"),
        (b'{"accuracy": [74.7]}', "per cent must be divided by 100"),
        (b'{"accuracy": [-0.1]}', "holds -0.1"),
        (b'{"accuracy": [1e999]}', ""),
        (b'{"accuracy": [NaN]}', "it is not JSON"),
        (b'{"joint": [0.5, 0.6]}', "joint rises"),
        (b'{"accuracy": [0.5], "joint": [0.5, 0.4]}', "accuracy has 1 steps and joint 2"),
        (b'{"accuracy": [0.5], "positions": 0}', "positions is 0"),
        (b'{"accuracy": [0.5], "positions": true}', "positions is True"),
        (b'{"accuracy": [0.5], "positions": 1e30}', "positions is"),
        (b'{"a": {"accuracy": [0.5]}, "b": {"joint": [0.5]}}', "several of its objects"),
        (b'{"\\u001b[31m": {"accuracy": [2]}}', "?[31m.accuracy holds 2"),
        (b'{"accuracy": [' + b"0.5," * 64 + b"0.5]}", "is not a list of 1 to 64"),
        (b" " * (MOST_BYTES + 1), "more than"),
    ],
)
def test_hostile_files_are_one_clear_line(text: bytes, says: str) -> None:
    with pytest.raises(PredictionError) as caught:
        parse(text, "evil\x1b.json")
    message = str(caught.value)
    assert says in message
    assert "Fix: " in message
    assert message.isprintable()
    assert len(message) < 500


def read_or_refuse(data: bytes) -> None:
    """Either a prediction or a line for the terminal; nothing else may come out."""
    refused = ""
    shares: tuple[float, ...] = ()
    try:
        shares = parse(data, "f").expected.unconditional
    except PredictionError as error:
        refused = str(error)
    assert bool(refused) != bool(shares)
    assert refused.isprintable()
    assert all(0 <= share <= 1 for share in shares)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    read_or_refuse(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["accuracy", "joint", "positions", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json(value: Any) -> None:
    read_or_refuse(json.dumps(value).encode())


def test_gap_by_hand() -> None:
    found = compared(prediction(0.8, 0.8, positions=1000), acceptance(0.7, 0.8, rounds=1000))
    first, second = found.conditional
    assert first.gap == pytest.approx(0.1)
    # Newcombe: Wilson (0.7741, 0.8236) and (0.6709, 0.7276): 0.1 -+ hypot of the near arms.
    assert first.interval.low == pytest.approx(0.0621, abs=3e-4)
    assert first.interval.high == pytest.approx(0.1375, abs=3e-4)
    assert second.gap == pytest.approx(0.0)
    assert found.unconditional[1].gap == pytest.approx(0.64 - 0.56)
    assert found.predicted_length == pytest.approx(2.44)
    assert found.measured_length == pytest.approx(2.26)


def test_an_exact_promise_leaves_the_measurements_interval() -> None:
    (gap,) = compared(prediction(0.8), acceptance(0.7, rounds=1000)).conditional
    measured = gap.measured.interval
    assert gap.interval.low == pytest.approx(0.8 - measured.high)
    assert gap.interval.high == pytest.approx(0.8 - measured.low)


@pytest.mark.parametrize(
    ("measured", "pattern"),
    [
        ((0.8, 0.8, 0.8), "none"),
        ((0.79, 0.8, 0.81), "none"),
        ((0.33, 0.25, 0.2), "first"),
        ((0.6, 0.8, 0.8), "first"),
        ((0.8, 0.4, 0.4), "later"),
        ((0.8, 0.8, 0.5), "later"),
        ((0.74, 0.74, 0.74), "uniform"),
        ((0.74, 0.74, 0.8), "uniform"),
        ((0.74, 0.8, 0.8), "none"),
        ((0.8, 0.74, 0.74), "none"),  # the first position must have its share
        ((0.87, 0.87, 0.87), "better"),
    ],
)
def test_patterns(measured: tuple[float, ...], pattern: str) -> None:
    found = compared(prediction(0.8, 0.8, 0.8), acceptance(*measured))
    assert found.pattern == pattern
    assert bool(found.suggests) == (pattern != "none")


def test_few_rounds_name_no_pattern() -> None:
    assert compared(prediction(0.8), acceptance(0.1, rounds=99)).pattern == "none"
    assert compared(prediction(0.8), acceptance(0.72, rounds=100)).pattern == "none"
    assert compared(prediction(0.8), acceptance(0.1, rounds=100)).pattern == "first"


def test_steps_in_common() -> None:
    assert compared(prediction(0.8, 0.8), acceptance(0.8, 0.8, 0.8)).steps == 2
    assert compared(prediction(0.8, 0.8, 0.8), acceptance(0.8)).steps == 1
    assert compare(prediction(0.8), from_outcomes({}, requests=0)) is None


def test_sampled_rounds_are_left_out_where_enough_are_greedy() -> None:
    mixed, greedy = acceptance(0.6), acceptance(0.8, rounds=200)
    found = compared(prediction(0.8), mixed, greedy=greedy, sampling_share=0.9)
    assert found.greedy_only
    assert found.pattern == "none"
    few = compared(prediction(0.8), mixed, greedy=acceptance(0.8, rounds=50), sampling_share=0.9)
    assert not few.greedy_only
    assert few.pattern == "first"
    assert not compared(prediction(0.8), mixed, greedy=mixed, sampling_share=0.0).greedy_only


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 10_000))
def test_curves_fall_and_lengths_lie_within_the_ceiling(
    shares: list[float], positions: int
) -> None:
    made = prediction(*shares, positions=positions)
    product = made.by_product
    assert product is not None
    curve = product.unconditional
    assert all(a >= b for a, b in pairwise(curve))
    assert 1 <= product.length(len(shares)) <= len(shares) + 1
    found = compared(made, acceptance(*([0.5] * len(shares)), rounds=300))
    for gap in found.unconditional:
        assert gap.interval.low <= gap.gap + 1e-9
        assert gap.gap <= gap.interval.high + 1e-9
