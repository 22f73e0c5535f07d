"""The longest common run of ids, against the definition; and in seconds at size."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_eagle3_probe.offline.comparing.alignment import (
    ANCHORED,
    WINDOW,
    Run,
    WindowIndex,
    aligned,
    common_beginning,
    longest_common_run,
)

IDS = st.lists(st.integers(-1, 3), max_size=40)


def tensor(ids: list[int]) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64)


def longest_by_definition(first: list[int], second: list[int]) -> int:
    best = 0
    lengths = [0] * (len(second) + 1)
    for a in first:
        for j in range(len(second), 0, -1):
            lengths[j] = lengths[j - 1] + 1 if a == second[j - 1] and a >= 0 else 0
            best = max(best, lengths[j])
    return best


@given(IDS, IDS)
@settings(max_examples=400, deadline=None)
def test_the_run_is_equal_and_no_other_is_longer(first: list[int], second: list[int]) -> None:
    run = longest_common_run(tensor(first), tensor(second))
    assert run.length == longest_by_definition(first, second)
    mine = first[run.first_start : run.first_start + run.length]
    assert mine == second[run.second_start : run.second_start + run.length]
    assert len(mine) == run.length
    assert all(token >= 0 for token in mine)


@given(
    st.lists(st.integers(0, 50), min_size=WINDOW, max_size=80),
    st.lists(st.integers(60, 99), max_size=30),
    st.lists(st.integers(100, 130), max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_a_text_is_found_behind_a_chat_prefix(
    text: list[int], before: list[int], other: list[int]
) -> None:
    run = aligned(tensor(before + text), tensor(other + text))
    assert run == Run(len(before), len(other), len(text))
    index = WindowIndex([tensor(other), tensor(other + text)])
    assert index.candidates(tensor(before + text)) == [1]


def test_a_long_common_beginning_is_preferred_to_a_longer_run() -> None:
    beginning, tail = list(range(ANCHORED)), list(range(1000, 1200))
    first = tensor([*beginning, 5000, *tail])
    second = tensor([*beginning, 6000, 6001, *tail])
    assert aligned(first, second) == Run(0, 0, ANCHORED)
    assert aligned(first[1:], second) == Run(ANCHORED, ANCHORED + 2, len(tail))
    assert common_beginning(first, second) == ANCHORED


def test_unknown_ids_equal_nothing() -> None:
    assert longest_common_run(tensor([-1] * 20), tensor([-1] * 20)).length == 0
    assert common_beginning(tensor([1, -1, 2]), tensor([1, -1, 2])) == 1
    index = WindowIndex([tensor([-1] * 40)])
    assert index.candidates(tensor([-1] * 40)) == []


def test_samples_that_share_most_come_first() -> None:
    text = torch.arange(200)
    index = WindowIndex([text[:30], text[100:], torch.arange(500, 700), text[:5]])
    assert index.candidates(text) == [1, 0]
    assert WindowIndex([]).candidates(text) == []


@pytest.mark.parametrize("kind", ["random", "one_id", "periodic"])
def test_a_hundred_thousand_ids_take_seconds(kind: str) -> None:
    torch.manual_seed(0)
    count = 100_000
    first = {
        "random": torch.randint(0, 50_000, (count,)),
        "one_id": torch.zeros(count, dtype=torch.int64),
        "periodic": torch.arange(count) % 7,
    }[kind]
    second = torch.cat([torch.randint(60_000, 70_000, (30_000,)), first[20_000:90_000]])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        start = time.process_time()
        assert WindowIndex([second]).candidates(first) == [0]
        run = aligned(first, second)
        spent = time.process_time() - start
    finally:
        torch.set_num_threads(threads)
    assert run.length == 70_000
    assert spent < 10
