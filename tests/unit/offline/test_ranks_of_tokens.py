"""Ranks of tokens in a draft's distribution, and how far rounding may move them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.offline.drafts import drafting  # noqa: E402

IDS = torch.tensor([10, 12, 14, 16, 18])
LOGITS = torch.tensor(
    [
        [4.0, 1.0, 3.0, 2.0, 0.0],
        # 1.00 and 1.01 are within a hundredth of each other, 1.2 is not.
        [1.0, 1.01, 1.0, 1.2, -5.0],
    ]
)


def stub() -> Any:
    return SimpleNamespace(
        head=lambda: torch.empty(5, 1),
        logits=lambda rows: rows,
        target_ids=lambda ids: IDS[ids],
    )


@pytest.mark.parametrize("chunk", [1, 1000])
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([10, 16], [[1, 1, 1], [1, 1, 1]]),
        ([16, 12], [[3, 3, 3], [2, 2, 4]]),
        ([18, 10], [[5, 5, 5], [3, 2, 4]]),
        # Not in the draft vocabulary.
        ([11, 18], [[0, 0, 0], [5, 5, 5]]),
    ],
)
def test_ranks(
    tokens: list[int], expected: list[list[int]], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "LOGITS", chunk)
    found = drafting.ranks(stub(), LOGITS, torch.tensor(tokens), 0.011)
    assert found.tolist() == expected
