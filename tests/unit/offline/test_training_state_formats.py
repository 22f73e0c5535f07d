"""Every trainer's files are told apart and read as their producer means them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fixtures import materialise
from fixtures.prompts import held_out_sample
from safetensors.torch import save_file
from trained_files import SLOTS, Scene

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.captured import read_requests
from sglang_eagle3_probe.offline.comparing.comparison import compare
from sglang_eagle3_probe.offline.comparing.training_states.found import Search

TOKENS = 96
FORMATS = {
    "specforge": ("SpecForge", "post-norm"),
    "angelslim": ("AngelSlim", "post-norm"),
    "modelopt": ("ModelOpt", "post-norm"),
    "tensorrt_llm": ("TensorRT-LLM SaveState", "post-norm"),
    "nemo": ("NeMo Automodel cache", None),
    "speculators": ("speculators 0.5 or later", "pre-norm"),
    "vllm": ("vLLM extract_hidden_states", None),
    "speculators_old": ("speculators 0.3 or 0.4", "pre-norm"),
    "research": ("speculators research code", "post-norm"),
    "baldeagle": ("BaldEagle", None),
    "plain_pt": ("plain", None),
    "plain_safetensors": ("plain", None),
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("target")
    return Scene(materialise("llama", folder), held_out_sample()[:TOKENS])


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_capture_is_alike(name: str, scene: Scene, tmp_path: Path) -> None:
    producer, last = FORMATS[name]
    source = getattr(scene, name)(tmp_path / "states")
    found = compare(
        read_requests(scene.capture(tmp_path / "captures")), Search(source, scene.hidden)
    )
    [alignment] = found.alignments
    assert alignment.producer == producer
    assert alignment.same_beginning
    assert alignment.row_shift == 0
    # NeMo shifted the ids, so the first row has no id of its own.
    assert alignment.rows == TOKENS - (name == "nemo")
    assert (found.answer, found.findings, found.exit_code) == ("alike", (), 0)
    assert [slot.error.median for slot in found.slots] == [0.0, 0.0, 0.0]
    if last == "post-norm":
        torch.testing.assert_close(found.pairs.last, scene.final_norm)
    elif last == "pre-norm":
        torch.testing.assert_close(found.pairs.last, scene.boundaries[:, -1])
    else:
        assert found.pairs.last is None


@pytest.mark.parametrize("name", FORMATS)
def test_the_order_of_slots_survives_reading(name: str, scene: Scene, tmp_path: Path) -> None:
    source = getattr(scene, name)(tmp_path / "states", scene.aux((6, 2, 4)))
    found = compare(
        read_requests(scene.capture(tmp_path / "captures")), Search(source, scene.hidden)
    )
    assert [finding.name for finding in found.findings] == ["permuted"]
    assert found.trained_boundaries == (6, 2, 4)


def test_gzipped_files_are_unpacked(scene: Scene, tmp_path: Path) -> None:
    source = scene.specforge(tmp_path / "states", packed=True)
    assert [path.name for path in source.rglob("data_*")] == ["data_0.ckpt.gz"]
    found = compare(
        read_requests(scene.capture(tmp_path / "captures")), Search(source, scene.hidden)
    )
    assert found.answer == "alike"


def test_last_states_alone_are_said_to_be_no_aux_states(scene: Scene, tmp_path: Path) -> None:
    search = Search(scene.eagle(tmp_path / "states"), scene.hidden)
    with pytest.raises(CheckpointError, match=r"only the last state .EAGLE-1 style: "):
        compare(read_requests(scene.capture(tmp_path / "captures")), search)


def test_what_a_file_claims_about_its_layers_is_told(scene: Scene, tmp_path: Path) -> None:
    capture = scene.capture(tmp_path / "captures", slots=(3, 5, 7))
    for name in ("nemo", "speculators_old"):
        source = getattr(scene, name)(tmp_path / name)
        found = compare(read_requests(capture), Search(source, scene.hidden))
        assert found.pairs.claimed is not None
        assert found.pairs.claimed[:3] == SLOTS
        assert any("name their boundaries: [2, 4, 6" in note for note in found.notes)


def test_another_capture_stands_in_for_training(scene: Scene, tmp_path: Path) -> None:
    first = scene.capture(tmp_path / "first")
    second = scene.capture(tmp_path / "second", slots=(6, 4, 2))
    found = compare(read_requests(first), Search(second, scene.hidden))
    assert found.alignments[0].producer == "capture of this probe"
    assert [finding.name for finding in found.findings] == ["permuted"]


def test_the_sample_is_found_among_many(scene: Scene, tmp_path: Path) -> None:
    source = scene.specforge(tmp_path / "states")
    for number in range(1, 40):
        ids = torch.randint(0, 2000, (50,))
        record = {
            "input_ids": ids,
            "hidden_state": torch.randn(1, 50, scene.hidden),
            "aux_hidden_state": torch.randn(1, 50, 3 * scene.hidden),
        }
        torch.save(record, source / "rows_0-2000" / f"data_{number}.ckpt")
    (source / "rows_0-2000" / "data_7.ckpt").write_bytes(b"PK\x03\x04 not really")
    found = compare(
        read_requests(scene.capture(tmp_path / "captures")), Search(source, scene.hidden)
    )
    assert found.alignments[0].sample.endswith("data_0.ckpt")
    assert found.answer == "alike"
    assert any("1 files could not be read" in note for note in found.notes)


def test_strange_names_are_refused_with_what_is_there(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(4, 4), "b": torch.zeros(4)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds b, w: no known trainer's names"):
        list(Search(tmp_path / "model.safetensors", 4).samples())
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="TorchSpec keeps its states in memory"):
        list(Search(tmp_path / "notes.txt", 4).samples())
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="no files of training states"):
        list(Search(tmp_path / "empty", 4).samples())
    with pytest.raises(CheckpointError, match="does not exist"):
        list(Search(tmp_path / "gone.pt", 4).samples())


@pytest.mark.parametrize(
    ("aux", "message"),
    [
        (torch.zeros(1, 20, 25), r"of shape \[1, 20, 25\], expected floating point rows of 8"),
        (torch.zeros(1, 19, 24), "20 token ids and 19 rows"),
        (torch.zeros(1, 20, 24, dtype=torch.int64), "is I64, expected floating point"),
        ([torch.zeros(20, 8), torch.zeros(19, 8)], "a list whose members are not all"),
        ("text", "is a str"),
    ],
)
def test_states_that_do_not_fit(aux: object, message: str, tmp_path: Path) -> None:
    record = {
        "input_ids": torch.arange(20),
        "hidden_state": torch.zeros(1, 20, 8),
        "aux_hidden_state": aux,
    }
    torch.save(record, tmp_path / "data_0.ckpt")
    with pytest.raises(CheckpointError, match=message):
        list(Search(tmp_path / "data_0.ckpt", 8).samples())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(20), "is F32 of shape"),
        (torch.zeros(2, 10, dtype=torch.int64), "one sequence a file"),
        ("text", "no list of whole numbers"),
        ([1, "two"], "no list of whole numbers"),
        ([1 << 70], "no list of whole numbers"),
    ],
)
def test_ids_that_are_none(ids: object, message: str, tmp_path: Path) -> None:
    record = {
        "input_ids": ids,
        "hidden_state": torch.zeros(1, 20, 8),
        "aux_hidden_state": torch.zeros(1, 20, 24),
    }
    torch.save(record, tmp_path / "data_0.ckpt")
    with pytest.raises(CheckpointError, match=message):
        list(Search(tmp_path / "data_0.ckpt", 8).samples())
