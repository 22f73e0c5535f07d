"""The patches around the setter, on classes laid out like SGLang's, without SGLang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.host.guard import ProbeConfigurationError  # noqa: E402
from sglang_eagle3_probe.host.seams import SCHEDULER_SEAMS, Seam, seams_for  # noqa: E402
from sglang_eagle3_probe.host.session import Session  # noqa: E402
from sglang_eagle3_probe.host.wrapping import wrap, wrap_traceably  # noqa: E402
from sglang_eagle3_probe.patches.capture import LayerIdsPatch  # noqa: E402
from sglang_eagle3_probe.patches.embedding_copy import EmbeddingCopy  # noqa: E402
from sglang_eagle3_probe.patches.ids_before_graphs import RunnerIds, SetterIds  # noqa: E402
from sglang_eagle3_probe.settings import Settings  # noqa: E402
from sglang_eagle3_probe.trace.records import LayerIds  # noqa: E402

LAYERS = 12
DEFAULT = [2, 6, 9]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(Settings(enabled=True, dir=str(tmp_path)))
    yield made
    made.recorder.close("test over")


def target(session: Session, release: str, module: str, *, copies: bool = True) -> Any:
    """A model of a class called like SGLang's, with the probe's patches on it."""
    session.release = release
    patches = [SetterIds(session), LayerIdsPatch(session)]

    class DeepseekV2Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers_to_capture: list[int] = []

        def forward(self, input_ids: Any, positions: Any, input_embeds: Any = None) -> Any:
            return input_embeds

    class DeepseekV2ForCausalLM:
        def __init__(self) -> None:
            self.model = DeepseekV2Model()
            self.config = SimpleNamespace(num_hidden_layers=LAYERS, hidden_size=8)
            self.capture_aux_hidden_states = False
            self.logits_processor = torch.nn.Identity()

        def set_eagle3_layers_to_capture(self, layer_ids: Any = None) -> None:
            self.capture_aux_hidden_states = True
            ids = DEFAULT if layer_ids is None else [i + 1 for i in layer_ids]
            self.model.layers_to_capture = list(ids)

    for cls in (DeepseekV2Model, DeepseekV2ForCausalLM):
        cls.__module__ = f"sglang.srt.models.{module}"
    holder = ModuleType(module)
    holder.DeepseekV2Model = DeepseekV2Model  # type: ignore[attr-defined]
    holder.DeepseekV2ForCausalLM = DeepseekV2ForCausalLM  # type: ignore[attr-defined]
    rows = [s for s in seams_for("0.5.10.post1", SCHEDULER_SEAMS) if s.module.endswith("v2")]
    for row in rows:
        if row.name == "layer_ids":
            wrap(holder, row, patches)
        elif row.name == "embedding_copy" and copies:
            wrap_traceably(holder, row, EmbeddingCopy())
    return DeepseekV2ForCausalLM()


def runner(session: Session, model: Any, ids: list[int] | None, *, draft: bool = False) -> Any:
    class ModelRunner:
        is_draft_worker = draft
        eagle_use_aux_hidden_state = not draft

        def load_model(self) -> None:
            self.model = model

    holder = ModuleType("runner")
    holder.ModelRunner = ModelRunner  # type: ignore[attr-defined]
    [row] = [s for s in SCHEDULER_SEAMS if s.name == "target_loaded"]
    wrap(holder, row, [RunnerIds(session)])
    made = ModelRunner()
    made.eagle_aux_hidden_state_layer_ids = ids  # type: ignore[attr-defined]
    made.load_model()
    return made


def records(session: Session) -> list[Any]:
    kept: list[Any] = []
    session.feed = SimpleNamespace(put=kept.append)  # type: ignore[assignment]
    return kept


def test_calls_without_a_list_get_the_runners(session: Session) -> None:
    """0.5.10.post1: kernel warm-up, graph capture, and only then the configured ids."""
    model = target(session, "0.5.10.post1", "deepseek_v2")
    told = records(session)
    runner(session, model, [2, 5, 8])
    for arguments in ((), (), ([2, 5, 8],)):
        model.set_eagle3_layers_to_capture(*arguments)
        assert model.model.layers_to_capture == [3, 6, 9]
    [record] = [r for r in told if isinstance(r, LayerIds)]
    assert record.patches_applied == ["ids_before_graphs"]
    assert record.configured == [2, 5, 8]


def test_a_draft_runner_changes_nothing(session: Session) -> None:
    model = target(session, "0.5.10.post1", "deepseek_v2")
    runner(session, model, [2, 5, 8], draft=True)
    model.set_eagle3_layers_to_capture()
    assert model.model.layers_to_capture == DEFAULT
    assert session.early_patches == []


def test_nothing_configured_stays_the_default(session: Session) -> None:
    model = target(session, "0.5.10.post1", "deepseek_v2")
    runner(session, model, None)
    model.set_eagle3_layers_to_capture()
    assert model.model.layers_to_capture == DEFAULT


def test_the_embedding_is_captured_in_the_graphs_too(session: Session) -> None:
    model = target(session, "0.5.10.post1", "deepseek_v2")
    runner(session, model, [-1, 2, 5])
    model.set_eagle3_layers_to_capture()
    assert model.model.layers_to_capture == [3, 6]
    assert session.plans[model.logits_processor].boundaries == (0, 3, 6)


def test_another_list_undoes_the_copy(session: Session) -> None:
    model = target(session, "0.5.10.post1", "deepseek_v2")
    model.set_eagle3_layers_to_capture([-1, 2, 5])
    model.set_eagle3_layers_to_capture([2, 5, 8])
    assert session.plans[model.logits_processor].boundaries == (3, 6, 9)
    copy = torch.ones(1, 8)
    assert model.model(None, None, copy) is copy


def test_a_forward_that_could_not_be_patched_stops_the_start(session: Session) -> None:
    model = target(session, "0.5.10.post1", "deepseek_v2", copies=False)
    with pytest.raises(ProbeConfigurationError, match=r"DeepseekV2Model\.forward.*Fix: "):
        model.set_eagle3_layers_to_capture([-1, 2, 5])


def test_a_class_nobody_has_read_stops_the_start(session: Session) -> None:
    model = target(session, "0.5.10.post1", "some_other")
    with pytest.raises(ProbeConfigurationError, match="no release so far"):
        model.set_eagle3_layers_to_capture([-1, 2, 5])


def test_the_seam_is_where_the_ids_are_known() -> None:
    [row] = [s for s in SCHEDULER_SEAMS if s.name == "target_loaded"]
    assert isinstance(row, Seam)
    assert row.releases.contains("0.5.10.post1")
    assert not row.releases.contains("0.5.11")
