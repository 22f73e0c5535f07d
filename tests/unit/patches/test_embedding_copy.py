"""The embedding output is put in front of what an inner model captures, once, unharmed."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.host.embedding_capture import EMBEDDING_CAPTURE, of_forward  # noqa: E402
from sglang_eagle3_probe.host.seams import SCHEDULER_SEAMS, Seam, seams_for  # noqa: E402
from sglang_eagle3_probe.host.versions import Releases  # noqa: E402
from sglang_eagle3_probe.host.wrapping import Installer, SeamError, wrap_traceably  # noqa: E402
from sglang_eagle3_probe.patches import embedding_copy  # noqa: E402
from sglang_eagle3_probe.patches.embedding_copy import EmbeddingCopy  # noqa: E402

SEAM = Seam(
    name="embedding_copy",
    module="models",
    attribute="Inner.forward",
    parameters=("input_ids", "input_embeds"),
    releases=Releases(),
    why="",
)


def inner_model() -> Any:
    """A class laid out like DeepseekV2Model up to 0.5.13, with its in-place residual stream."""

    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = torch.nn.Embedding(16, 4)
            self.layers_to_capture: list[int] = []
            self.embeddings = 0

        def forward(
            self, input_ids: Any, positions: Any, forward_batch: Any, input_embeds: Any = None
        ) -> Any:
            """What the layers see."""
            if input_embeds is None:
                input_embeds = self.embed_tokens(input_ids)
            hidden, captured = input_embeds, []
            for i in range(3):
                if i in self.layers_to_capture:
                    captured.append(hidden + 0)
                hidden = hidden.add_(1.0)
            return (hidden, captured) if captured else hidden

    module = ModuleType("models")
    module.Inner = Inner  # type: ignore[attr-defined]
    wrap_traceably(module, SEAM, EmbeddingCopy())
    with torch.no_grad():
        model = Inner()
        model.embed_tokens.weight.copy_(torch.arange(64.0).view(16, 4))  # sums stay exact
    model.embed_tokens.weight.requires_grad_(False)
    return model


IDS = torch.tensor([3, 1, 2])


@pytest.mark.parametrize("embeds", ["absent", "None by place", "None by name"])
def test_copy_comes_first_and_is_not_overwritten(embeds: str) -> None:
    model = inner_model()
    embedding_copy.ask_for(model, [0, 1])
    calls: list[Any] = []
    model.embed_tokens.register_forward_hook(lambda *_: calls.append(1))
    args: tuple[Any, ...] = (IDS, None, None)
    kwargs: dict[str, Any] = {}
    if embeds == "None by place":
        args = (*args, None)
    elif embeds == "None by name":
        kwargs = {"input_embeds": None}
    hidden, captured = model(*args, **kwargs)
    expected = model.embed_tokens.weight[IDS]
    assert len(captured) == 2
    assert torch.equal(captured[0], expected)
    assert torch.equal(captured[1], expected + 1)
    assert torch.equal(hidden, expected + 3)
    assert len(calls) == 1


@pytest.mark.parametrize("by_place", [True, False])
def test_given_embeddings_are_the_boundary(by_place: bool) -> None:
    model = inner_model()
    embedding_copy.ask_for(model, [0, 2])
    merged = torch.full((3, 4), 7.0)
    given = merged.clone()
    result = model(None, None, None, given) if by_place else model(
        input_ids=None, positions=None, forward_batch=None, input_embeds=given
    )  # fmt: skip
    assert torch.equal(result[1][0], merged)
    assert torch.equal(result[1][1], merged + 2)


def test_only_the_embedding() -> None:
    model = inner_model()
    embedding_copy.ask_for(model, [0])
    hidden, captured = model(input_ids=IDS, positions=None, forward_batch=None)
    expected = model.embed_tokens.weight[IDS]
    assert len(captured) == 1
    assert torch.equal(captured[0], expected)
    assert torch.equal(hidden, expected + 3)


def test_models_that_did_not_ask_are_as_before() -> None:
    model = inner_model()
    model.layers_to_capture = [1]
    assert len(model(IDS, None, None)[1]) == 1
    embedding_copy.ask_for(model, [1, 0])
    assert embedding_copy.asked_of(model) == [1, 0]
    assert model.layers_to_capture == [1]
    embedding_copy.forget(model)
    assert embedding_copy.asked_of(model) is None
    assert len(model(IDS, None, None)[1]) == 1


def test_signature_and_place_stay() -> None:
    model = inner_model()
    assert list(inspect.signature(type(model).forward).parameters) == [
        "self", "input_ids", "positions", "forward_batch", "input_embeds",
    ]  # fmt: skip
    assert type(model).forward.__doc__ == "What the layers see."
    assert embedding_copy.is_in_place(model)
    assert not embedding_copy.is_in_place(torch.nn.Linear(1, 1))


def test_traced_whole_by_torch_compile() -> None:
    """As SGLang compiles a prefill graph: the unbound forward of the class, in one piece."""
    import types

    model = inner_model()
    embedding_copy.ask_for(model, [0, 1])
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    bound = types.MethodType(type(model).forward, model)
    compiled = torch.compile(bound, fullgraph=True, backend=backend)
    expected = model.embed_tokens.weight[IDS]
    _, captured = compiled(IDS, None, None)
    assert len(graphs) == 1
    assert torch.equal(captured[0], expected)
    assert torch.equal(captured[1], expected + 1)


def test_other_signatures_are_refused() -> None:
    module = ModuleType("models")

    class Inner:
        def forward(self, input_ids: Any) -> Any:
            return input_ids

    module.Inner = Inner  # type: ignore[attr-defined]
    with pytest.raises(SeamError, match="no parameter input_embeds"):
        wrap_traceably(module, SEAM, EmbeddingCopy())


def test_the_installer_reports_it() -> None:
    installer = Installer({}, {"embedding_copy": EmbeddingCopy()})
    old = seams_for("0.5.13.post1", SCHEDULER_SEAMS)
    installer.install([row for row in old if row.name == "embedding_copy"])
    installer.note_absent(
        [row for row in SCHEDULER_SEAMS if row.name == "embedding_copy"], "0.5.23"
    )
    states = {state.target: state for state in installer.states()}
    deepseek = states["sglang.srt.models.deepseek_v2:DeepseekV2Model.forward"]
    assert deepseek.used_by == ["embedding_copy"]
    assert deepseek.state == "absent"
    assert "0.5.23" in deepseek.why


def test_ranges_of_the_table_do_not_overlap() -> None:
    from sglang_eagle3_probe.host.versions import NEWEST_PROVED

    assert of_forward("sglang.srt.models.deepseek_v2:DeepseekV2Model") is not None
    for row in EMBEDDING_CAPTURE:
        for bound in (row.by_copy, row.by_itself):
            assert bound is None or bound.until is None or bound.until != NEWEST_PROVED
        if row.by_copy is not None and row.by_itself is not None:
            assert row.by_copy.until is not None
            assert not row.by_itself.contains(row.by_copy.until), row.inner
    assert len({row.inner for row in EMBEDDING_CAPTURE}) == len(EMBEDDING_CAPTURE)
