"""Reading checkpoints: what is found, and what is refused with one clear line."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from unit.checkpoint import checkpoint_files as make

from sglang_eagle3_probe.checkpoint import reader
from sglang_eagle3_probe.checkpoint.facts import CheckpointError, Situation
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint


def refusal(place: Path | str) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(str(place))
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 1200
    return message


# -- what is found ------------------------------------------------------------------------------


def test_draft_in_one_file(tmp_path: Path) -> None:
    facts = read_checkpoint(str(make.draft(tmp_path)))
    assert facts.tensors is not None
    assert facts.tensors["fc.weight"].shape == (8, 24)
    assert facts.tensors["fc.weight"].dtype == "BF16"
    assert facts.d2t == (1, 1, 3, 6)
    assert facts.t2d_kept == make.KEPT
    assert facts.t2d_size == make.TARGET_VOCAB
    assert facts.notes == ()


@pytest.mark.parametrize("map_type", ["I64", "I32"])
@pytest.mark.parametrize("kept_type", ["BOOL", "U8", "I32"])
def test_map_dtypes(tmp_path: Path, map_type: str, kept_type: str) -> None:
    tensors = {
        "d2t": (map_type, (make.DRAFT_VOCAB,)),
        "t2d": (kept_type, (make.TARGET_VOCAB,)),
    }
    facts = read_checkpoint(str(make.draft(tmp_path, tensors)))
    assert facts.d2t == (1, 1, 3, 6)
    assert facts.t2d_kept == make.KEPT


def test_map_of_floats_is_noted_not_read(tmp_path: Path) -> None:
    place = make.draft(tmp_path, {})
    data = make.with_header(
        {"d2t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"8" * 8
    )
    (place / "model.safetensors").write_bytes(data)
    facts = read_checkpoint(str(place))
    assert facts.d2t is None
    assert "F32" in facts.notes[0]


def test_shards_by_index(tmp_path: Path) -> None:
    names = list(make.DRAFT_TENSORS)
    files = {
        "a.safetensors": {name: make.DRAFT_TENSORS[name] for name in names[:3]},
        "b.safetensors": {name: make.DRAFT_TENSORS[name] for name in names[3:]},
    }
    place = make.checkpoint(tmp_path, make.DRAFT_CONFIG, files)
    (place / "consolidated.safetensors").write_bytes(b"not read")
    facts = read_checkpoint(str(place))
    assert sorted(facts.tensors or ()) == sorted(names)
    assert facts.d2t == (1, 1, 3, 6)
    assert "consolidated.safetensors" in facts.notes[0]


def test_config_alone(tmp_path: Path) -> None:
    place = make.draft(tmp_path) / "config.json"
    facts = read_checkpoint(str(place))
    assert facts.tensors is None
    assert facts.notes


def test_index_that_names_a_tensor_in_no_file(tmp_path: Path) -> None:
    place = make.draft(tmp_path)
    make.index(place, {"fc.weight": "model.safetensors", "gone": "model.safetensors"})
    assert "gone" in read_checkpoint(str(place)).notes[0]


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    place = make.target(tmp_path)
    (place / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    (place / "pytorch_model.bin").chmod(0)
    facts = read_checkpoint(str(place))
    assert facts.tensors is None
    assert "pickle" in facts.notes[0]
    assert "pickle" in refusal(place / "pytorch_model.bin")


# -- the Hugging Face cache ---------------------------------------------------------------------


def cache_entry(folder: Path) -> Path:
    entry = folder / "models--someone--draft"
    snapshot = entry / "snapshots" / "abc"
    blobs = entry / "blobs"
    blobs.mkdir(parents=True)
    for file in make.draft(folder / "made").iterdir():
        blob = blobs / f"hash-{file.name}"
        blob.write_bytes(file.read_bytes())
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return entry


def test_cache_snapshot_entry_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = cache_entry(tmp_path / "hub")
    assert read_checkpoint(str(entry / "snapshots" / "abc")).d2t is not None
    assert read_checkpoint(str(entry)).d2t is not None
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    assert read_checkpoint("someone/draft").d2t is not None
    assert "nothing is ever downloaded" in refusal("someone/else")


def test_cache_with_several_snapshots_needs_main(tmp_path: Path) -> None:
    entry = cache_entry(tmp_path)
    (entry / "snapshots" / "def").mkdir()
    assert "2 snapshots" in refusal(entry)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("abc\n")
    assert read_checkpoint(str(entry)).d2t is not None
    (entry / "refs" / "main").write_text("../../elsewhere")
    assert "2 snapshots" in refusal(entry)


# -- what is refused ----------------------------------------------------------------------------


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(make.safetensors(make.DRAFT_TENSORS))
    place = make.target(tmp_path / "a")
    (place / "model.safetensors").symlink_to(outside)
    assert "out of the checkpoint" in refusal(place)
    (place / "model.safetensors").unlink()
    (place / "config.json").unlink()
    (place / "config.json").symlink_to("/etc/passwd")
    assert "out of the checkpoint" in refusal(place)


def test_links_in_a_circle(tmp_path: Path) -> None:
    place = make.target(tmp_path / "a")
    (place / "model.safetensors").symlink_to(place / "model.safetensors")
    assert "circle" in refusal(place)
    (tmp_path / "x").symlink_to(tmp_path / "y")
    (tmp_path / "y").symlink_to(tmp_path / "x")
    assert "circle" in refusal(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "expected an object"),
        ("{}", "empty object"),
        ("null", "expected an object"),
        ('{"a": ' + "9" * 5000 + "}", "too long"),
        ("[" * 200_000, "JSON"),
        ('{"a":' * 100_000, "JSON"),
        ("\ufeff{}", "JSON"),
        ('{"weight_map": {}}', "index"),
    ],
)
def test_broken_configs(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    assert words in refusal(file)


def test_config_in_other_bytes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff\xfe"}')
    assert "UTF-8" in refusal(tmp_path)


def test_config_too_large(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    assert "MB" in refusal(tmp_path)


@pytest.mark.parametrize(
    "place", ["/nonexistent/x", "", "a\0b", "x" * 5000, "\udcff", "~nobody-at-all/x", "/dev/null"]
)
def test_places_that_are_none(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refusal(place)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert "regular file" in refusal(tmp_path)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make.target(tmp_path)

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert "may not be read" in refusal(place)
    monkeypatch.undo()
    monkeypatch.setattr(os, "listdir", refuse)
    assert "may not be read" in refusal(place)


def test_folder_without_config(tmp_path: Path) -> None:
    assert "no config.json" in refusal(tmp_path)
    assert "weights file" in refusal(make.draft(tmp_path) / "model.safetensors")


def row(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (b"\x01\x02", "2 bytes"),
        ((1 << 63).to_bytes(8, "little"), "expected at most"),
        ((500).to_bytes(8, "little") + b"{}", "cut off"),
        ((2).to_bytes(8, "little") + b"[]", "expected an object"),
        ((2).to_bytes(8, "little") + b"\xff\xff", "UTF-8"),
        (make.with_header({"a": 5}), "expected an object"),
        (make.with_header({"a": {}}), "dtype"),
        (make.with_header({"a": row(shape=[-2])}, bytes(8)), "shape"),
        (make.with_header({"a": row(shape=[2.5])}, bytes(8)), "shape"),
        (make.with_header({"a": row(shape=[True, 2])}, bytes(8)), "shape"),
        (make.with_header({"a": row(shape=[1] * 70)}, bytes(8)), "shape"),
        (make.with_header({"a": row(data_offsets=[8, 0])}, bytes(8)), "data_offsets"),
        (make.with_header({"a": row(data_offsets=[0])}, bytes(8)), "data_offsets"),
        (make.with_header({"a": row(data_offsets=[0, 1 << 70])}, bytes(8)), "data_offsets"),
        (make.with_header({"a": row()}, bytes(4)), "cut off"),
        (make.with_header({"a": row(shape=[3])}, bytes(8)), "does not fill"),
        (make.with_header({"a": row(shape=[1 << 61, 1 << 61])}, bytes(8)), "does not fill"),
        (make.with_header({"a": row(), "b": row()}, bytes(8)), "share bytes"),
    ],
)
def test_broken_safetensors(tmp_path: Path, data: bytes, words: str) -> None:
    place = make.target(tmp_path)
    (place / "model.safetensors").write_bytes(data)
    assert words in refusal(place)


def test_unheard_of_dtypes_are_no_error(tmp_path: Path) -> None:
    place = make.target(tmp_path)
    data = make.with_header({"a": row(dtype="F2_NEW")}, bytes(8))
    (place / "model.safetensors").write_bytes(data)
    facts = read_checkpoint(str(place))
    assert facts.tensors is not None
    assert facts.tensors["a"].dtype == "F2_NEW"


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        (None, "no weight_map"),
        ([], "no weight_map"),
        ({"a": 5}, "names"),
        ({"a": ["x"]}, "names"),
        ({"a": "missing.safetensors"}, "not there"),
        ({"a": "model.safetensors.index.json"}, "names"),
        ({"a": "../x.safetensors"}, "names"),
        ({"a": "/etc/x.safetensors"}, "names"),
        ({"a": "x\0.safetensors"}, "names"),
        ({"a": "\ud800.safetensors"}, "names"),
        ({f"t{i}": f"{i}.safetensors" for i in range(10_001)}, "at most"),
    ],
)
def test_broken_index(tmp_path: Path, weight_map: object, words: str) -> None:
    place = make.target(tmp_path)
    make.index(place, weight_map)
    assert words in refusal(place)


def test_weights_that_are_a_folder(tmp_path: Path) -> None:
    place = make.target(tmp_path)
    (place / "model.safetensors").mkdir()
    refusal(place)


def test_too_many_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_TENSORS", 5)
    assert "more than 5 tensors" in refusal(make.draft(tmp_path))


# -- speed --------------------------------------------------------------------------------------


def large(folder: Path, shards: int, tensors: int) -> Path:
    """Sparse files of 8 MB a tensor, as a large target has them."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(make.TARGET_CONFIG))
    size = 8 << 20
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        name = f"model-{shard:05d}-of-{shards:05d}.safetensors"
        header = {
            f"model.layers.{shard}.mlp.experts.{i}.down_proj.weight": {
                "dtype": "BF16",
                "shape": [2048, 2048],
                "data_offsets": [i * size, (i + 1) * size],
            }
            for i in range(tensors)
        }
        weight_map |= dict.fromkeys(header, name)
        with (folder / name).open("wb") as file:
            file.write(make.with_header(header))
            file.truncate(file.tell() + tensors * size)
    make.index(folder, weight_map)
    return folder


def test_two_hundred_shards_of_sixty_thousand_tensors(tmp_path: Path) -> None:
    place = large(tmp_path, 200, 300)
    start = time.process_time()
    facts = read_checkpoint(str(place))
    took = time.process_time() - start
    assert len(facts.tensors or ()) == 60_000
    assert took < 2.0


def test_time_for_a_target_does_not_grow_with_its_headers(tmp_path: Path) -> None:
    """As many tensors as Kimi-K2.5 with packed experts, 1.6 TB: read in 2 to 5 s with headers."""
    place = large(tmp_path, 64, 3240)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sglang_eagle3_probe.cli.main", "doctor", "--target", place),
            *("--draft", make.draft(tmp_path / "draft"), "--json"),
        ],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert json.loads(done.stdout)["target"]["tensors"] == 64 * 3240
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


# -- a target, of whose weights only the beginnings are looked at ----------------------------------


def test_without_headers(tmp_path: Path) -> None:
    place = make.draft(tmp_path)
    make.index(place, dict.fromkeys(make.DRAFT_TENSORS, "model.safetensors"))
    facts = read_checkpoint(str(place), headers=False)
    assert facts.tensors is None
    assert facts.d2t is None
    assert facts.weights == len(make.DRAFT_TENSORS)
    (place / "model.safetensors.index.json").unlink()
    assert read_checkpoint(str(place), headers=False).weights == len(make.DRAFT_TENSORS)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "no safetensors file"),
        (b"", "has 0 bytes"),
        ((100).to_bytes(8, "little") + b"{}", "cut off"),
        (None, "of which 1 are not there"),
    ],
)
def test_without_headers_broken_files_are_refused_all_the_same(
    tmp_path: Path, data: bytes | None, words: str
) -> None:
    place = make.draft(tmp_path)
    make.index(place, dict.fromkeys(make.DRAFT_TENSORS, "model.safetensors"))
    (place / "model.safetensors").unlink()
    if data is not None:
        (place / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(str(place), headers=False)


# -- where quantisation is said ------------------------------------------------------------------


def test_quantisation_is_read_where_sglang_reads_it(tmp_path: Path) -> None:
    place = make.draft(tmp_path)
    assert read_checkpoint(str(place)).quantization is None
    separate = {"quantization": {"quant_algo": "FP8"}}
    (place / "hf_quant_config.json").write_text(json.dumps(separate))
    assert read_checkpoint(str(place)).quantization == separate
    config = json.loads((place / "config.json").read_text())
    for name in ("compression_config", "quantization_config"):
        config[name] = {"quant_method": name}
        (place / "config.json").write_text(json.dumps(config))
        assert read_checkpoint(str(place)).quantization == {"quant_method": name}


def test_a_broken_quantisation_file_is_a_note(tmp_path: Path) -> None:
    place = make.draft(tmp_path)
    (place / "hf_quant_config.json").write_text("[1]")
    facts = read_checkpoint(str(place))
    assert facts.quantization is None
    assert "hf_quant_config.json was passed over" in facts.notes[0]


# -- what rules ask ------------------------------------------------------------------------------


def test_situation_reads_through_text_config(tmp_path: Path) -> None:
    inner = {"num_hidden_layers": 61, "hidden_size": 8, "vocab_size": 16}
    outer = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": inner}
    target = read_checkpoint(str(make.checkpoint(tmp_path / "t", outer, {})))
    draft = read_checkpoint(str(make.draft(tmp_path / "d")))
    situation = Situation(target, draft, "0.5.23", {"speculative_algorithm": "eagle3"})
    assert situation.num_layers == 61
    assert situation.hidden == 8
    assert situation.target_class == "KimiK25ForConditionalGeneration"
    assert situation.nested_ids == (1, 15, 28)
    assert situation.top_level_ids is None
    assert (situation.fc_in, situation.fc_out, situation.head_rows) == (24, 8, 4)
    assert situation.draft_vocab == 4
    assert situation.algorithm == "EAGLE3"
    assert situation.uses_aux


def test_nonsense_in_configs_counts_as_absent(tmp_path: Path) -> None:
    config = {
        "architectures": "x", "num_hidden_layers": True, "hidden_size": 10**30,
        "vocab_size": "16", "text_config": [], "eagle_config": 3,
        "eagle_aux_hidden_state_layer_ids": [1, None],
    }  # fmt: skip
    facts = read_checkpoint(str(make.checkpoint(tmp_path, config, {})))
    situation = Situation(facts, facts, "0.5.23", {"speculative_algorithm": 3})
    assert situation.num_layers is None
    assert situation.hidden is None
    assert situation.target_class is None
    assert situation.eagle_config is None
    assert situation.top_level_ids is None
    assert situation.algorithm is None
    assert situation.uses_aux
