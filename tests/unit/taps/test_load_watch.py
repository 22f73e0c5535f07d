"""The load watch against a loader that drops and forgets, with real tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.taps.load_watch import LoadWatch  # noqa: E402


class Draft(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(12, 4, bias=False)
        self.qkv = torch.nn.Parameter(torch.randn(12, 8))
        self.norm = torch.nn.Parameter(torch.ones(4))
        self.scale = torch.nn.Parameter(torch.ones(4, dtype=torch.int32), requires_grad=False)

    def load(self, weights: Iterable[tuple[str, Any]]) -> None:
        parameters = dict(self.named_parameters())
        for name, tensor in weights:
            if name in ("q", "k", "v"):
                start = "qkv".index(name) * 4
                self.qkv.data[start : start + 4].copy_(tensor)
            elif name in parameters:
                parameters[name].data.copy_(tensor)


def load(draft: Draft, weights: list[tuple[str, Any]]) -> Any:
    watch = LoadWatch(draft.named_parameters())
    draft.load(watch.follow(weights))
    return watch.finish()


def full() -> list[tuple[str, Any]]:
    return [
        ("q", torch.randn(4, 8)),
        ("k", torch.randn(4, 8)),
        ("v", torch.randn(4, 8)),
        ("fc.weight", torch.randn(4, 12)),
        # Equal to the initial value: comparing values would call it unfilled.
        ("norm", torch.ones(4)),
    ]


def test_a_whole_checkpoint_is_taken_and_fills_everything() -> None:
    draft, weights = Draft(), full()
    report = load(draft, weights)
    assert report.not_taken == []
    assert report.not_filled == []
    assert report.partly_filled == []
    assert report.unwatched == ["scale"]
    assert torch.equal(draft.fc.weight, weights[3][1])
    assert torch.equal(draft.qkv[4:8], weights[1][1])


def test_losses_are_named_and_initial_values_restored() -> None:
    draft = Draft()
    before = {name: p.detach().clone() for name, p in draft.named_parameters()}
    weights = [w for w in full() if w[0] in ("q", "v")] + [("midlayer.extra", torch.randn(3))]
    report = load(draft, weights)
    assert report.not_taken == ["midlayer.extra"]
    assert sorted(report.not_filled) == ["fc.weight", "norm"]
    assert report.partly_filled == ["qkv"]
    assert torch.equal(draft.fc.weight, before["fc.weight"])
    assert torch.equal(draft.norm, before["norm"])
    assert torch.equal(draft.qkv[4:8], before["qkv"][4:8])
    assert not any(p.isnan().any() for p in draft.parameters())


def test_a_load_that_fails_leaves_no_mark_behind() -> None:
    draft = Draft()
    before = {name: p.detach().clone() for name, p in draft.named_parameters()}
    watch = LoadWatch(draft.named_parameters())

    def broken() -> Iterator[tuple[str, Any]]:
        yield "nobody", torch.zeros(1)
        raise OSError("the file ended early")

    with pytest.raises(OSError, match="ended early"):
        draft.load(watch.follow(broken()))
    watch.finish()
    for name, parameter in draft.named_parameters():
        assert torch.equal(parameter, before[name])


def test_large_parameters_are_sampled_to_the_end() -> None:
    watch = LoadWatch([("big", torch.nn.Parameter(torch.zeros(100_003)))])
    marked = watch._marked["big"]
    assert int(marked.index.max()) > 99_000
    watch.restore()
    assert not marked.flat.isnan().any()
