"""Forward hooks of ours beside torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_probe.host.guard import Guard
from sglang_eagle3_probe.host.module_hooks import ModuleHook


def hooked(seen: list[Any]) -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 4))
    site = Guard(3, lambda _fault: None).site("test")

    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        with site:
            seen.append(tuple(output.shape))

    ModuleHook("embedding", "first of the two", "test").attach(model[0], hook)
    return model


def test_hook_sees_an_eager_forward() -> None:
    seen: list[Any] = []
    hooked(seen)(torch.tensor([1, 2, 3]))
    assert seen == [(3, 4)]


def test_forward_that_must_compile_in_one_piece_still_does() -> None:
    """SGLang 0.5.12 compiles the target's prefill with fullgraph for its piecewise graphs."""
    seen: list[Any] = []
    model = hooked(seen)
    ids = torch.tensor([1, 2, 3])
    expected = model(ids)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(ids), expected)
    assert len(seen) == 1, "only the eager forward is seen"
