"""Files of strangers: nothing in them runs, and no size they claim is believed."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.comparing.training_states import gzip_file
from sglang_eagle3_probe.offline.comparing.training_states.found import Search
from sglang_eagle3_probe.offline.comparing.training_states.record import Stored
from sglang_eagle3_probe.offline.comparing.training_states.torch_file import read_torch_file


class Command:
    """Unpickled, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def zipped(path: Path, description: bytes, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/data.pkl", description)
        for name, data in members.items():
            out.writestr(f"archive/data/{name.removeprefix('d')}", data)
    return path


def described(thing: object) -> bytes:
    return pickle.dumps(thing, protocol=2)


def tensor_call(shape: str, strides: str, count: str = "4", key: bytes = b"0") -> bytes:
    """A dict with one tensor in pickle's own words; sizes as decimal text."""
    body = io.BytesIO()
    body.write(b"\x80\x02}X\x05\x00\x00\x00thing")
    body.write(
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    )
    body.write(b"X" + struct.pack("<I", len(key)) + key + b"X\x03\x00\x00\x00cpu")
    body.write(_number(int(count)) + b"tQK\x00")
    for numbers in (shape, strides):
        body.write(b"(" + b"".join(_number(int(n)) for n in numbers.split()) + b"t")
    body.write(b"\x89ccollections\nOrderedDict\n)RtRs.")
    return body.getvalue()


def _number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a\x09" + data


def test_the_hand_made_description_is_a_right_one(tmp_path: Path) -> None:
    data = struct.pack("<6f", *range(6))
    path = zipped(tmp_path / "x.pt", tensor_call("2 3", "3 1", "6"), d0=data)
    found = read_torch_file(path)
    assert isinstance(found, dict)
    tensor = found["thing"]
    assert isinstance(tensor, Stored)
    assert tensor.load().tolist() == [[0, 1, 2], [3, 4, 5]]
    turned = zipped(tmp_path / "y.pt", tensor_call("3 2", "1 3", "6"), d0=data)
    assert read_torch_file(turned)["thing"].load().tolist() == [[0, 3], [1, 4], [2, 5]]  # type: ignore[index,union-attr,call-overload]


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    torch.save({"input_ids": torch.arange(4), "x": Command(mark)}, tmp_path / "data_0.ckpt")
    with pytest.raises(CheckpointError, match=r"refers to \w+.mkdir, which is code.*nothing of it"):
        list(Search(tmp_path / "data_0.ckpt", 8).samples())
    assert not mark.exists()
    # The same file does run where pickles are trusted, so the test can fail.
    torch.load(tmp_path / "data_0.ckpt", weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize(
    "thing",
    [
        bytearray(8),
        {1, 2},
        complex(1, 2),
        torch.nn.Linear(2, 2),
        torch.float32,
        __import__("numpy").zeros(3),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_objects_that_are_no_plain_data_are_refused_by_name(thing: object, tmp_path: Path) -> None:
    torch.save({"x": thing}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"(refers to|uses the pickle instruction) \S+"):
        read_torch_file(tmp_path / "x.pt")


def test_plain_data_comes_back_as_it_was(tmp_path: Path) -> None:
    given_ = {
        "ids": [1, 2, 300, 70_000, -5],
        "name": "text",
        "none": None,
        "yes": True,
        "half": 0.5,
        "nested": {"a": [torch.ones(2, dtype=torch.bfloat16)], "t": (1, "b")},
        "parameter": torch.nn.Parameter(torch.arange(3.0)),
        "view": torch.arange(12).reshape(3, 4)[1:, ::2],
        "empty": torch.zeros(0, 4),
        "size": torch.Size([2, 3]),
    }
    torch.save(given_, tmp_path / "x.pt")
    found: Any = read_torch_file(tmp_path / "x.pt")
    assert found["ids"] == given_["ids"]
    assert (found["name"], found["none"], found["yes"], found["half"]) == ("text", None, True, 0.5)
    assert found["nested"]["a"][0].load().tolist() == [1, 1]
    assert found["nested"]["t"] == [1, "b"]
    assert found["parameter"].load().tolist() == [0, 1, 2]
    assert found["view"].load().tolist() == [[4, 6], [8, 10]]
    assert found["empty"].load().shape == (0, 4)
    assert found["size"] == [2, 3]


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ("1099511627776 1024", "1024 1", "claims a tensor of shape"),
        ("5", "1", "claims a tensor of shape"),
        ("2 2", "4 1", "claims a tensor of shape"),
        ("-1", "1", "sizes that no tensor has"),
        ("2", "-1", "sizes that no tensor has"),
        ("2 2", "1", "do not go together"),
        ("281474976710656", "0", "sizes that no tensor has"),
    ],
)
def test_shapes_that_the_bytes_do_not_fill(
    shape: str, strides: str, message: str, tmp_path: Path
) -> None:
    path = zipped(tmp_path / "x.pt", tensor_call(shape, strides), d0=b"\0" * 16)
    with pytest.raises(CheckpointError, match=message):
        read_torch_file(path)


def test_a_tensor_that_repeats_one_number_too_often_is_not_read(tmp_path: Path) -> None:
    for size in ("1099511627776", "17000000"):
        path = zipped(tmp_path / "x.pt", tensor_call(size, "0"), d0=b"\0" * 16)
        found: Any = read_torch_file(path)
        with pytest.raises(CheckpointError, match="too large"):
            found["thing"].load()
    torch.save({"mask": torch.ones(1).expand(1000)}, tmp_path / "y.pt")
    repeated: Any = read_torch_file(tmp_path / "y.pt")
    assert repeated["mask"].load().sum() == 1000


def test_a_tensor_whose_bytes_are_missing(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.pt", tensor_call("4", "1", key=b"7"), d0=b"\0" * 16)
    with pytest.raises(CheckpointError, match="data is missing"):
        read_torch_file(path)


@pytest.mark.parametrize(
    "steps",
    [
        b"\x80\x02r\xff\xff\xff\x7f.",
        b"\x80\x02.",
        b"\x80\x02(((",
        b"\x80\x02}(X\x01\x00\x00\x00au.",
        b"\x80\x02h\x05.",
        b"\x80\x02cbuiltins\neval\n.",
        b"\x80\x02\x8a\xff",
        b"\x80\x02]]a",
        b"\x80\x02}]b.",
        b"\x80\x02(ios\nsystem\n.",
        b"not a pickle",
        b"",
    ],
)
def test_damaged_and_unwanted_instructions(steps: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Fix: "):
        read_torch_file(zipped(tmp_path / "x.pt", steps))


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_instructions_end_in_a_value_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, steps: bytes
) -> None:
    path = zipped(tmp_path_factory.getbasetemp() / "any.pt", b"\x80\x02" + steps + b".")
    message = "Fix: "
    try:
        read_torch_file(path)
    except CheckpointError as error:
        message = str(error)
    assert "Fix: " in message


def test_lists_of_lists_cost_as_much_as_if_spelt_out(tmp_path: Path) -> None:
    level: list[Any] = ["x"] * 1000
    for _ in range(3):
        level = [level] * 1000
    with pytest.raises(CheckpointError, match="more than 1000000 values"):
        read_torch_file(zipped(tmp_path / "x.pt", described(level)))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    nested: Any = {"x": 1}
    for _ in range(50):
        nested = {"x": nested}
    torch.save(nested, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="nested more than 4 deep"):
        read_torch_file(tmp_path / "x.pt")
    turning: list[Any] = []
    turning.append(turning)
    with pytest.raises(CheckpointError, match="nested more than 4 deep"):
        read_torch_file(zipped(tmp_path / "y.pt", described(turning)))


def test_old_and_foreign_files(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"no file of torch.save since torch 1\.6"):
        read_torch_file(tmp_path / "old.pt")
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as out:
        out.writestr("readme", b"x")
    with pytest.raises(CheckpointError, match=r"without data\.pkl"):
        read_torch_file(tmp_path / "other.pt")
    with zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("archive/data.pkl", b"\0" * 1_000_000)
    with pytest.raises(CheckpointError, match="compressed members"):
        read_torch_file(tmp_path / "packed.pt")
    (tmp_path / "empty.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no file of torch\.save"):
        read_torch_file(tmp_path / "empty.pt")


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95, 0.999])
def test_cut_off_files(share: float, tmp_path: Path) -> None:
    torch.save({"input_ids": torch.arange(5000)}, tmp_path / "x.pt")
    data = (tmp_path / "x.pt").read_bytes()
    (tmp_path / "x.pt").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"cut off|damaged"):
        read_torch_file(tmp_path / "x.pt")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_torch_file(tmp_path / "x.pt")


def test_gzip_bombs_and_broken_gzips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = tmp_path / "data_0.ckpt.gz"
    bomb.write_bytes(gzip.compress(b"\0" * (64 << 20)))
    with pytest.raises(CheckpointError, match="unpacks to more than"):
        list(Search(bomb, 8).samples())
    torch.save({"input_ids": torch.arange(5000)}, tmp_path / "x.pt")
    whole = gzip.compress((tmp_path / "x.pt").read_bytes())
    bomb.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="damaged or cut off gzip"):
        list(Search(bomb, 8).samples())
    bomb.write_bytes(b"no gzip at all")
    with pytest.raises(CheckpointError, match="damaged or cut off gzip"):
        list(Search(bomb, 8).samples())
    bomb.write_bytes(whole)
    monkeypatch.setattr(gzip_file, "FREE_OF_RATIO", 0)
    monkeypatch.setattr(gzip_file, "RATIO_LIMIT", 1)
    with pytest.raises(CheckpointError, match="unpacks to more than"):
        list(Search(bomb, 8).samples())


def test_hostile_files_take_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    test_shapes_that_the_bytes_do_not_fill(
        "1099511627776 1024", "1024 1", "claims a tensor of shape", tmp_path
    )
    with pytest.raises(CheckpointError):
        read_torch_file(zipped(tmp_path / "m.pt", b"\x80\x02]r\xff\xff\xff\x7f0."))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
