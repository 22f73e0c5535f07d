"""A draft's own embedding against the target's, by rows."""

from __future__ import annotations

import random
import struct
from array import array
from pathlib import Path

import pytest
from unit.checkpoint import checkpoint_files as make
from unit.checkpoint.test_checkpoint_fuzz import mutated_bytes, seeded

from sglang_eagle3_probe.checkpoint.embeddings import ROWS, compared_embeddings
from sglang_eagle3_probe.checkpoint.facts import EmbeddingRows
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint

VOCAB, WIDTH = 1000, 4
TARGET_NAME = "language_model.model.embed_tokens.weight"


def numbers(seed: int, rows: int = VOCAB) -> list[float]:
    """Such as bfloat16 holds exactly."""
    rng = random.Random(seed)
    return [float(rng.randrange(-100, 100)) for _ in range(rows * WIDTH)]


def stored(values: list[float], dtype: str) -> bytes:
    whole = array("f", values).tobytes()
    if dtype == "F32":
        return whole
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return b"".join(whole[i + 2 : i + 4] for i in range(0, len(whole), 4))


def written(place: Path, tensors: dict[str, tuple[str, list[float]]]) -> Path:
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        part = stored(values, dtype)
        shape = [len(values) // WIDTH, WIDTH]
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += part
    (place / "model.safetensors").write_bytes(make.with_header(header, data))
    return place


def compared(target: Path, draft: Path) -> EmbeddingRows | None:
    facts = read_checkpoint(str(draft))
    return compared_embeddings(str(target), str(draft), facts)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    target, draft = make.target(tmp_path / "t"), make.draft(tmp_path / "d")
    other = {"model.layers.61.embed_tokens.weight": ("BF16", numbers(9))}
    written(target, {TARGET_NAME: ("BF16", numbers(1)), **other})
    make.index(target, dict.fromkeys((TARGET_NAME, *other), "model.safetensors"))
    return target, draft


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_copy_is_told_from_another(places: tuple[Path, Path], dtype: str) -> None:
    target, draft = places
    written(draft, {"embed_tokens.weight": (dtype, numbers(1))})
    assert compared(target, draft) == EmbeddingRows(ROWS, 0)
    written(draft, {"model.embed_tokens.weight": (dtype, numbers(2))})
    found = compared(target, draft)
    assert found is not None
    assert found.differ > ROWS * 0.95


def test_single_rows_and_padding(places: tuple[Path, Path]) -> None:
    target, draft = places
    changed = numbers(1)
    changed[0] += 1.0
    written(draft, {"embed_tokens.weight": ("BF16", changed)})
    assert compared(target, draft) == EmbeddingRows(ROWS, 1)
    written(draft, {"embed_tokens.weight": ("BF16", numbers(1) + [0.0] * WIDTH * 24)})
    assert compared(target, draft) == EmbeddingRows(ROWS, 0)


def test_nothing_to_compare(places: tuple[Path, Path], tmp_path: Path) -> None:
    target, draft = places
    assert compared(target, draft) is None
    written(draft, {"embed_tokens.weight": ("F16", numbers(1))})
    assert compared(target, draft) is None
    written(draft, {"embed_tokens.weight": ("BF16", numbers(1))})
    facts = read_checkpoint(str(draft))
    assert compared_embeddings(str(target / "config.json"), str(draft), facts) is None
    assert compared_embeddings(str(make.target(tmp_path / "bare")), str(draft), facts) is None
    (target / "model.safetensors").unlink()
    outside = written(make.target(tmp_path / "other"), {TARGET_NAME: ("BF16", numbers(1))})
    (target / "model.safetensors").symlink_to(outside / "model.safetensors")
    assert compared(target, draft) is None


def test_without_an_index(tmp_path: Path) -> None:
    target = written(make.target(tmp_path / "t"), {TARGET_NAME: ("BF16", numbers(1))})
    draft = written(make.draft(tmp_path / "d"), {"embed_tokens.weight": ("BF16", numbers(1))})
    assert compared(target, draft) == EmbeddingRows(ROWS, 0)


def test_broken_files_are_no_traceback(places: tuple[Path, Path]) -> None:
    target, draft = places
    written(draft, {"embed_tokens.weight": ("BF16", numbers(1, 4))})
    written(target, {TARGET_NAME: ("BF16", numbers(1, 4))})
    facts = read_checkpoint(str(draft))
    rng = seeded("embeddings")
    files = (target / "model.safetensors", target / "model.safetensors.index.json")
    valid = {file: file.read_bytes() for file in files}
    answers = set()
    for _ in range(600):
        for file, data in valid.items():
            file.write_bytes(mutated_bytes(data, rng) if rng.random() < 0.6 else data)
        answers.add(compared_embeddings(str(target), str(draft), facts) is None)
    assert answers == {True, False}
