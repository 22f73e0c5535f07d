"""What a request's record says, from a request as SGLang has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_eagle3_probe.taps.draft_vocabulary import membership
from sglang_eagle3_probe.taps.requests import request_end, request_start


def request(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "rid": "r",
        "origin_input_ids": [1] * 12,
        "output_ids": [2] * 9,
        "sampling_params": SimpleNamespace(temperature=1.0, top_k=1),
        "cached_tokens": 4,
        "extend_batch_idx": 1,
        "grammar": None,
        "finished_reason": SimpleNamespace(to_json=lambda: {"type": "length", "length": 7}),
        "finished_len": 7,
        "spec_verify_ct": 3,
        "spec_num_correct_drafts": 5,
        "spec_correct_drafts_histogram": [1, 0, 1, 1],
        "retraction_count": 2,
    }
    return SimpleNamespace(**{**values, **changes})


def test_an_end_cuts_what_came_after_the_stop() -> None:
    record = request_end(request(), "d")
    assert (record.output_tokens, record.cut_tokens) == (7, 2)
    assert (record.verify_rounds, record.correct_drafts) == (3, 5)
    assert record.histogram == [1, 0, 1, 1]
    assert (record.reason, record.retractions) == ("length", 2)


def test_an_aborted_request_may_be_shorter_than_its_mark() -> None:
    record = request_end(request(finished_len=20), "d")
    assert (record.output_tokens, record.cut_tokens) == (9, 0)
    assert request_end(request(finished_len=None), "d").output_tokens == 9


@pytest.mark.parametrize(
    ("correct", "histogram"),
    [
        ("spec_num_correct_drafts", "spec_correct_drafts_histogram"),
        ("spec_accepted_drafts", "spec_acceptance_histogram"),
        ("spec_accepted_tokens", "spec_acceptance_histogram"),
    ],
)
def test_names_of_every_release(correct: str, histogram: str) -> None:
    mine = request()
    del mine.spec_num_correct_drafts, mine.spec_correct_drafts_histogram
    setattr(mine, correct, 4)
    setattr(mine, histogram, [2, 1])
    record = request_end(mine, "d")
    assert (record.correct_drafts, record.histogram) == (4, [2, 1])


def test_temperature_zero_comes_as_top_k_one() -> None:
    greedy = request_start(request(), "d")
    assert (greedy.temperature, greedy.greedy) == (0.0, True)
    sampled = request_start(
        request(sampling_params=SimpleNamespace(temperature=0.7, top_k=1 << 30)), "d"
    )
    assert (sampled.temperature, sampled.greedy) == (0.7, False)


def test_the_prompt() -> None:
    record = request_start(request(extend_batch_idx=3, grammar=object()), "d")
    assert (record.prompt_tokens, record.cached_tokens) == (12, 4)
    assert (record.chunked_prefill, record.grammar) == (True, True)
    assert request_start(request(), "d").chunked_prefill is False


def test_membership() -> None:
    assert membership(torch.tensor([5, 0, 2], dtype=torch.int32)) == b"\1\0\1\0\0\1"
    assert membership(torch.tensor([], dtype=torch.int64)) == b""
