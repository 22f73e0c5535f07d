"""The plugin on files that already hold the source diffs: it neither undoes nor repeats them.

The setter is the release's own, with the diffs in it, on a stand-in for the model.
"""

from __future__ import annotations
import __future__

import ast
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_eagle3_probe.host.call import Binder, Call
from sglang_eagle3_probe.host.guard import ProbeConfigurationError
from sglang_eagle3_probe.host.session import CapturePlan, Session
from sglang_eagle3_probe.host.versions import Releases
from sglang_eagle3_probe.patches.capture import LayerIdsPatch
from sglang_eagle3_probe.settings import Settings
from sglang_eagle3_probe.source_patches.series import load
from sglang_eagle3_probe.source_patches.unified import added

from .conftest import unavailable
from .releases import RELEASES
from .wheels import WheelsUnavailable

MODEL = "sglang/srt/models/deepseek_v2.py"
SETTER = "set_eagle3_layers_to_capture"
LAYERS = 12
AS_IS = Releases("0.5.13")
"""From here on DeepSeek-V2 takes most lists as boundaries."""


@cache
def patched_parts(
    source: bytes, release: str, diffs: int | None
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The setter, and the attributes that the diffs give to the outer and the inner class."""
    for part in load(release).of_file(MODEL)[:diffs]:
        source = added(part, source)
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    outer = _variables(classes["DeepseekV2ForCausalLM"], "aux_hidden_state_places")
    inner = _variables(classes["DeepseekV2Model"], "captures_embedding_output")
    [setter] = [
        node
        for node in classes["DeepseekV2ForCausalLM"].body
        if isinstance(node, ast.FunctionDef) and node.name == SETTER
    ]
    space: dict[str, Any] = {}
    lazy = __future__.annotations.compiler_flag
    exec(compile(ast.Module([setter], []), MODEL, "exec", flags=lazy), space)
    return space[SETTER], outer, inner


def patched_model(source: bytes, release: str, *, diffs: int | None = None) -> Any:
    """A stand-in with the patched class attributes and the patched setter."""
    setter, outer, inner = patched_parts(source, release, diffs)
    module = {"__module__": "sglang.srt.models.deepseek_v2"}
    model = type("DeepseekV3ForCausalLM", (), {**module, **outer, SETTER: setter})()
    model.config = SimpleNamespace(num_hidden_layers=LAYERS, hidden_size=4)
    model.pp_group = SimpleNamespace(is_last_rank=True)
    forward = {**module, "forward": lambda *_: None, "layers_to_capture": []}
    model.model = type("DeepseekV2Model", (), {**inner, **forward})()
    model.logits_processor = type("LogitsProcessor", (), {})()
    return model


def _variables(cls: ast.ClassDef, name: str) -> dict[str, Any]:
    """The class variable of this name, or nothing."""
    found: dict[str, Any] = {}
    for node in cls.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            found[name] = ast.literal_eval(node.value)
    return found


def set_through_plugin(session: Session, model: Any, ids: list[int] | None) -> CapturePlan:
    call = Call(
        Binder.of(getattr(type(model), SETTER), has_self=True),
        getattr(model, SETTER),
        model,
        (ids,),
        {},
    )
    LayerIdsPatch(session).run(lambda c: c.wrapped(*c.args, **c.kwargs), call)
    return session.plans[model.logits_processor]


def handed_to_draft(model: Any, plan: CapturePlan) -> list[int]:
    """Boundaries in the order in which they leave the logits processor."""
    layers = list(model.model.layers_to_capture)
    assert "captures_embedding_output" not in vars(type(model.model)) or 0 not in layers
    arriving = sorted(layers + [0] * getattr(model.model, "captures_embedding_output", False))
    if model.aux_hidden_state_places is not None:
        arriving = [arriving[place] for place in model.aux_hidden_state_places]
    if plan.order is not None:
        arriving = [arriving[place] for place in plan.order]
    return arriving


@pytest.fixture
def source(wheel_folders: dict[str, Path | WheelsUnavailable], release: str) -> bytes:
    folder = wheel_folders[release]
    if isinstance(folder, WheelsUnavailable):
        unavailable(folder)
    return (folder / MODEL).read_bytes()


def session_of(release: str, place: Path, **settings: Any) -> Session:
    session = Session(Settings(enabled=True, dir=str(place), **settings))
    session.release = release
    return session


def own_reading(release: str, ids: list[int]) -> list[int]:
    """Boundaries that the release makes of a list without -1."""
    shift = 0 if AS_IS.contains(release) and ids[0] != 1 else 1
    return [i + shift for i in ids]


@pytest.mark.parametrize("patches", [("embedding_capture", "capture_order"), ()])
@pytest.mark.parametrize("release", RELEASES)
def test_lists_of_the_config(
    release: str, source: bytes, patches: tuple[str, ...], tmp_path: Path
) -> None:
    """Whatever the plugin's own patches are set to, the source does them."""
    model = patched_model(source, release)
    session = session_of(release, tmp_path, patches=patches)
    cases: list[tuple[list[int] | None, list[int]]] = [
        ([-1, 2, 5], [0, 3, 6]),
        ([5, -1, 2], [6, 0, 3]),
        ([8, 1, 5], own_reading(release, [8, 1, 5])),
        ([1, 8, 5], own_reading(release, [1, 8, 5])),
        ([2, 5, 8], own_reading(release, [2, 5, 8])),
        (None, [2, 6, 9]),
        ([-1], [0]),
    ]
    for ids, expected in cases:  # one model for all: nothing of an earlier list may stay
        plan = set_through_plugin(session, model, ids)
        assert handed_to_draft(model, plan) == expected, ids
        assert list(plan.boundaries) == expected, ids


@pytest.mark.parametrize(
    ("settings", "configured", "expected"),
    [
        ({"layer_ids": (5, -1, 2)}, [3, 6, 9], [6, 0, 3]),
        ({"layer_ids": (5, -1, 2)}, None, [6, 0, 3]),
        ({"layer_ids_unit": "boundary"}, [6, 0, 3], [6, 0, 3]),
        ({"layer_ids_unit": "output_id"}, [5, 0, 2], [6, 1, 3]),
    ],
)
@pytest.mark.parametrize("release", RELEASES)
def test_lists_and_units_of_variables(
    release: str,
    source: bytes,
    settings: dict[str, Any],
    configured: list[int] | None,
    expected: list[int],
    tmp_path: Path,
) -> None:
    model = patched_model(source, release)
    plan = set_through_plugin(session_of(release, tmp_path, **settings), model, configured)
    assert handed_to_draft(model, plan) == expected
    assert list(plan.boundaries) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_only_the_first_diff(release: str, source: bytes, tmp_path: Path) -> None:
    """Then the plugin keeps the order, or refuses where it cannot know of the embedding."""
    model = patched_model(source, release, diffs=1)
    model.aux_hidden_state_places = None
    session = session_of(release, tmp_path)
    if Releases("0.5.14").contains(release):
        plan = set_through_plugin(session, model, [5, -1, 2])
        assert handed_to_draft(model, plan) == list(plan.boundaries) == [6, 0, 3]
        return
    with pytest.raises(ProbeConfigurationError, match=r"without 0002-capture-order\.patch"):
        set_through_plugin(session, model, [5, -1, 2])
