"""Trees, accepted paths and pieces, on the CPU side of a capture."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch

from sglang_eagle3_probe.capture.assembly import (
    accepted_path,
    boundary_fault,
    chain_parents,
    no_rounds,
    rounds_tensors,
    tree_parents,
)
from sglang_eagle3_probe.capture.folder import BudgetReached, CaptureFolder
from sglang_eagle3_probe.capture.layout import PieceInfo, shape_fault


def test_first_children_and_siblings_become_parents() -> None:
    #     0
    #    / \
    #   1   2
    #   |  / \
    #   5 3   4
    first_child = [1, 5, 3, -1, -1, -1]
    next_sibling = [-1, 2, -1, 4, -1, -1]
    assert tree_parents(first_child, next_sibling) == [-1, 0, 0, 2, 2, 1]
    assert chain_parents(4) == [-1, 0, 1, 2]


def test_links_that_run_in_a_circle_end() -> None:
    assert tree_parents([1, 0], [-1, 1]) == [-1, 0]


def test_the_accepted_path_follows_tokens() -> None:
    parents = [-1, 0, 0, 2, 2, 1]
    ids = [9, 10, 11, 10, 12, 13]
    assert accepted_path(ids, parents, [11, 10]) == [0, 2, 3]
    assert accepted_path(ids, parents, []) == [0]
    assert accepted_path(ids, parents, [12]) is None


def entry(ids: list[int], root: int, predict: list[int], accept_len: int) -> dict[str, object]:
    nodes = len(ids)
    return {
        "aux": torch.randn(nodes, 6),
        "node_ids": torch.tensor(ids),
        "node_positions": torch.arange(root, root + nodes),
        "target_ids": torch.tensor(ids) + 1,
        "predict": torch.tensor(predict, dtype=torch.int32),
        "accept_len": torch.tensor([accept_len], dtype=torch.int32),
        "boundary_states": torch.randn(3, nodes, 2),
        "round_numbers": torch.tensor([root]),
    }


def info(**more: object) -> PieceInfo:
    known: dict[str, object] = {
        "kind": "rounds",
        "request": "r",
        "piece": 0,
        "boundaries": [0, 1, 2],
        "hidden_width": 2,
        "dtype": "float32",
        "num_draft_tokens": 3,
        "steps": 2,
        "topk": 1,
    }
    return PieceInfo(**{**known, **more})  # type: ignore[arg-type]


def test_rounds_of_a_chain() -> None:
    rounds = [entry([5, 6, 7], 4, [6, 8, 0], 2), entry([8, 1, 2], 6, [3, 0, 0], 1)]
    tensors, lost = rounds_tensors(rounds, nodes=3, steps=2)  # type: ignore[arg-type]
    assert lost == []
    assert tensors["accepted_nodes"].tolist() == [[0, 1, -1], [0, -1, -1]]
    assert tensors["bonus_ids"].tolist() == [8, 3]
    assert tensors["root_positions"].tolist() == [4, 6]
    assert tensors["round_numbers"].tolist() == [4, 6]
    assert tensors["boundary_states"].shape == (2, 3, 3, 2)
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    assert shape_fault(info(all_boundaries=[0, 1, 2]), shapes) is None


def test_a_path_that_is_not_in_the_tree_is_told() -> None:
    tensors, lost = rounds_tensors([entry([5, 6, 7], 4, [7, 8, 0], 2)], nodes=3, steps=2)  # type: ignore[list-item]
    assert lost == ["the accepted path of 1 verify rounds is not in their trees"]
    assert tensors["accepted_nodes"].tolist() == [[0, -1, -1]]


def test_an_empty_last_piece_has_the_right_shapes() -> None:
    tensors = no_rounds(3, 2, 6, torch.float32)
    assert shape_fault(info(), {name: tuple(t.shape) for name, t in tensors.items()}) is None


def test_boundaries_that_are_not_those_of_the_aux_states_are_found() -> None:
    states = torch.randn(4, 3, 2)
    aux = torch.cat([states[:, 0], states[:, 2]], dim=1)
    tensors = {"aux": aux, "boundary_states": states}
    assert boundary_fault(tensors, [0, 2], 2, [0, 1, 2]) is None
    fault = boundary_fault(tensors, [0, 1], 2, [0, 1, 2])
    assert fault is not None
    assert "boundary 1" in fault
    assert boundary_fault({"aux": aux}, [0, 1], 2, []) is None


def test_the_folder_is_private_and_keeps_its_budget(tmp_path: Path) -> None:
    folder = CaptureFolder(tmp_path / "captures", "host-1-tp0", 10_000)
    tensors = no_rounds(3, 2, 6, torch.float32)
    path, size = folder.write(0, info(), tensors)
    assert stat.S_IMODE((tmp_path / "captures").stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert folder.used_bytes == size == path.stat().st_size
    with pytest.raises(BudgetReached):
        folder.write(0, info(piece=1), {**tensors, "more": torch.zeros(2000)})
    assert len(list((tmp_path / "captures").iterdir())) == 1
