"""Capture files: written, read, put together; holes named; files of strangers refused in words."""

from __future__ import annotations

import errno
import json
import resource
import signal
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sglang_eagle3_probe.capture.layout import METADATA_KEY, PieceInfo, piece_name
from sglang_eagle3_probe.capture.writing import write_piece
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.captured import CapturedRequest, read_piece, read_requests

H, A = 4, 3


def info(kind: str, piece: int, **more: object) -> PieceInfo:
    known = {
        "request": "r",
        "boundaries": [0, 3, 6],
        "hidden_width": H,
        "dtype": "float32",
        "num_draft_tokens": 4,
        "steps": 3,
        "topk": 1,
    }
    return PieceInfo(kind=kind, piece=piece, **{**known, **more})  # type: ignore[arg-type]


def state(position: int) -> torch.Tensor:
    """A row that tells its position."""
    return torch.full((A * H,), float(position))


def prefill(start: int, ids: list[int], **more: object) -> dict[str, torch.Tensor]:
    positions = torch.arange(start, start + len(ids))
    return {
        "token_ids": torch.tensor(ids),
        "positions": positions,
        "aux": torch.stack([state(int(p)) for p in positions]),
        **{name: torch.tensor(value) for name, value in more.items()},
    }


def rounds(roots: list[int], accepted: list[list[int]], ids: list[list[int]], bonus: list[int]):
    nodes = len(ids[0])
    positions = torch.tensor([[root + j for j in range(nodes)] for root in roots])
    return {
        "root_positions": torch.tensor(roots),
        "node_ids": torch.tensor(ids),
        "node_positions": positions,
        "node_parents": torch.tensor([[j - 1 for j in range(nodes)] for _ in roots]),
        "target_ids": torch.tensor(ids) + 1,
        "accepted_nodes": torch.tensor(accepted),
        "bonus_ids": torch.tensor(bonus),
        "aux": torch.stack([torch.stack([state(int(p)) for p in row]) for row in positions]),
    }


def written(folder: Path, *pieces: tuple[PieceInfo, dict[str, torch.Tensor]]) -> Path:
    for number, (description, tensors) in enumerate(pieces):
        write_piece(
            folder / piece_name(0, description.piece, f"h-1-tp0-{number}"), description, tensors
        )
    return folder


def only(folder: Path) -> CapturedRequest:
    [request] = read_requests(folder)
    return request


def test_prompt_and_rounds_make_one_sequence(tmp_path: Path) -> None:
    first = info("prefill", 0, prompt_tokens=3)
    second = info("rounds", 1, last=True, first_position=3)
    request = only(
        written(
            tmp_path,
            (first, prefill(0, [10, 11, 12], prompt_ids=[10, 11, 12], next_id=[13])),
            (
                second,
                rounds(
                    [3, 5],
                    [[0, 1, -1, -1], [0, -1, -1, -1]],
                    [[13, 14, 90, 91], [15, 92, 93, 94]],
                    [15, 16],
                ),
            ),
        )
    )
    assert request.token_ids.tolist() == [10, 11, 12, 13, 14, 15, 16]
    assert request.aux_known.tolist() == [True] * 6 + [False]
    assert request.aux[:6, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert request.complete
    assert request.rounds["root_positions"].tolist() == [3, 5]
    assert "aux" not in request.rounds


def test_a_hole_from_the_prefix_cache_is_named(tmp_path: Path) -> None:
    piece = info("prefill", 0, first_position=2, cached_tokens=2, prompt_tokens=4)
    request = only(written(tmp_path, (piece, prefill(2, [12, 13], prompt_ids=[10, 11, 12, 13]))))
    assert request.token_ids.tolist() == [10, 11, 12, 13]
    [hole] = request.holes
    assert (hole.start, hole.stop) == (0, 2)
    assert "prefix cache" in hole.why


def test_a_piece_that_is_not_there_leaves_a_hole(tmp_path: Path) -> None:
    request = only(
        written(
            tmp_path,
            (info("prefill", 0, more_chunks=True), prefill(0, [10, 11], next_id=[99])),
            (info("prefill", 2, first_position=4), prefill(4, [14], next_id=[15])),
        )
    )
    assert request.token_ids.tolist() == [10, 11, -1, -1, 14, 15]
    [hole] = request.holes
    assert "[1]" in hole.why


def test_files_are_private(tmp_path: Path) -> None:
    written(tmp_path, (info("prefill", 0), prefill(0, [1])))
    [path] = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_writer_refuses_other_shapes(tmp_path: Path) -> None:
    tensors = prefill(0, [1, 2])
    tensors["aux"] = tensors["aux"][:, :-1]
    with pytest.raises(ValueError, match=r"aux has shape \[2, 11\]"):
        write_piece(tmp_path / "x.safetensors", info("prefill", 0), tensors)
    assert list(tmp_path.iterdir()) == []


def test_the_writer_refuses_tensors_of_one_memory(tmp_path: Path) -> None:
    tensors = prefill(0, [1, 2])
    tensors["draft_input_ids"] = tensors["token_ids"]
    with pytest.raises(ValueError, match="piece 0 of request r has tensors that share memory"):
        write_piece(tmp_path / "x.safetensors", info("prefill", 0), tensors)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_os_error(tmp_path: Path) -> None:
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as raised:
            write_piece(tmp_path / "x.safetensors", info("prefill", 0), prefill(0, [1] * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert raised.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99"),
        ({"hidden_width": 5}, "A\\*H = 15"),
        ({"kind": "other"}, "description cannot be read"),
    ],
)
def test_descriptions_of_strangers(change: dict[str, object], message: str, tmp_path: Path) -> None:
    import msgspec

    described = json.loads(msgspec.json.encode(info("prefill", 0))) | change
    path = tmp_path / "capture-x.safetensors"
    save_file(prefill(0, [1]), path, metadata={METADATA_KEY: json.dumps(described)})
    with pytest.raises(CheckpointError, match=message):
        read_piece(path)


def test_positions_of_strangers_allocate_nothing(tmp_path: Path) -> None:
    tensors = prefill(0, [1])
    tensors["positions"] = torch.tensor([1 << 40])
    path = tmp_path / "capture-x.safetensors"
    write_piece(path, info("prefill", 0), tensors)
    with pytest.raises(CheckpointError, match="positions holds 1099511627776"):
        read_piece(path)
    tensors["positions"] = torch.tensor([(1 << 24) - 1])
    write_piece(path, info("prefill", 0), tensors)
    with pytest.raises(CheckpointError, match="reaches position"):
        list(read_requests(path, limit_bytes=1 << 20))


def test_a_plain_model_is_no_capture(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="without the description of a capture"):
        read_piece(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="LEVEL=capture"):
        list(read_requests(tmp_path))
