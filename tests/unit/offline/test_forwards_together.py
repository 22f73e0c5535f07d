"""Forwards in step: the same results as one after the other, whatever else they do."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.offline.drafts import together as module  # noqa: E402
from sglang_eagle3_probe.offline.drafts.together import multiply, together  # noqa: E402


def weights(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(8, 8, generator=generator).to(torch.bfloat16) for _ in range(count)]


def forward(rows: int, of: list[torch.Tensor]) -> torch.Tensor:
    x = torch.arange(rows * 8, dtype=torch.float32).reshape(rows, 8) / 100
    for weight in of:
        x = multiply(x, weight).sin()
    return x


def test_results_are_those_of_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = weights(4)
    # Of other lengths, other numbers of rows, and one that leaves a weight out.
    ways = [(3, made), (1, made[:2]), (5, [made[0], *made[2:]]), (0, made), (2, [])]
    expected = [forward(rows, of) for rows, of in ways]
    products: list[int] = []
    alone = module._product

    def counted(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        products.append(len(x))
        return alone(x, weight)

    monkeypatch.setattr(module, "_product", counted)
    found = together([lambda way=way: forward(*way) for way in ways])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert products == [9, 4, 8, 8]


def test_more_rows_than_fit_at_once_are_multiplied_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NUMBERS", 20)
    made = weights(2)
    found = together([lambda rows=rows: forward(rows, made) for rows in (4, 1, 1, 1)])
    for mine, rows in zip(found, (4, 1, 1, 1), strict=True):
        torch.testing.assert_close(mine, forward(rows, made))


def test_one_that_fails_leaves_the_others_alone() -> None:
    made = weights(2)

    def failing() -> torch.Tensor:
        multiply(torch.ones(1, 8), made[0])
        raise ValueError("here")

    first, second = together([failing, lambda: forward(2, made)])
    assert isinstance(first, ValueError)
    torch.testing.assert_close(second, forward(2, made))


def test_a_product_that_fails_ends_every_thread() -> None:
    before = threading.active_count()
    wide = torch.ones(8, 9)
    with pytest.raises(RuntimeError, match="shape"):
        together([lambda: forward(2, [wide]), lambda: forward(3, [wide])])
    assert threading.active_count() == before


def test_memory_that_is_kept_serves_inside_and_outside_inference_mode() -> None:
    x, weight = torch.randn(3, 64), torch.randn(1 << 19, 64).to(torch.bfloat16)
    with torch.inference_mode():
        inside = multiply(x, weight)
    assert torch.equal(inside, multiply(x, weight))
    with torch.inference_mode():
        assert torch.equal(inside, multiply(x, weight))
