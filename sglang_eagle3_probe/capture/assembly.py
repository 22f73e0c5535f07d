"""From what verification left on the device to the tensors of a ``rounds`` piece.

Pure functions on CPU tensors, for the thread that writes. SGLang links a tree's nodes by first
child and next sibling, both counted within the request (``retrieve_next_token``,
``retrieve_next_sibling``); files hold parents. It puts the accepted path's tokens at the front of
a request's rows of ``predict``, bonus token last (``EAGLEWorkerV2.verify``, 0.5.11 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    Tensors = Mapping[str, torch.Tensor]

NOT_FOLLOWED = "the accepted path of {} verify rounds is not in their trees"
DISAGREE = (
    "boundary {} and the aux states of the same boundary differ by up to {:.3g} of their size: the "
    "boundaries of this capture are not to be trusted"
)
TOLERANCE = 0.02
"""Of the greatest aux value: two roundings of bfloat16."""


def chain_parents(nodes: int) -> list[int]:
    """Parents of a chain: each node follows the one before."""
    return [node - 1 for node in range(nodes)]


def tree_parents(first_child: Sequence[int], next_sibling: Sequence[int]) -> list[int]:
    """Parent of each node; -1 for the root and for nodes that hang nowhere."""
    parents = [-1] * len(first_child)
    waiting = [0]
    while waiting:
        node = waiting.pop()
        child, steps = first_child[node], 0
        while 0 < child < len(parents) and steps < len(parents):
            parents[child] = node
            waiting.append(child)
            child, steps = next_sibling[child], steps + 1
    return parents


def accepted_path(
    node_ids: Sequence[int], parents: Sequence[int], tokens: Sequence[int]
) -> list[int] | None:
    """Nodes of the accepted path, root first.

    Args:
        tokens: the accepted tokens after the root, without the bonus token.

    Returns:
        ``None`` when the tree has no such path.
    """
    path = [0]
    for token in tokens:
        children = [n for n, parent in enumerate(parents) if parent == path[-1] and n != 0]
        found = [n for n in children if node_ids[n] == token]
        if not found:
            return None
        path.append(found[0])
    return path


def rounds_tensors(
    rounds: Sequence[Tensors], *, nodes: int, steps: int
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The tensors of a piece of at least one round, and what had to be left out, in words.

    Args:
        rounds: per round, as ``taps.capture_rows`` names them: ``aux`` [D, A*H], ``node_ids``,
            ``node_positions``, ``target_ids``, ``predict`` [D], ``accept_len`` [1], and where they
            were to be had ``first_child``, ``next_sibling`` [D], ``step_ids``, ``step_scores``
            [S, K], ``step_hidden`` [S, K, G], ``boundary_states`` [B, D, H], ``final_norm`` [D, H],
            ``round_numbers`` [1].
        nodes: D. steps: S.
    """
    lost: list[str] = []
    parents: list[list[int]] = []
    accepted: list[list[int]] = []
    bonus: list[int] = []
    not_followed = 0
    for entry in rounds:
        ids = entry["node_ids"].tolist()
        if "first_child" in entry:
            above = tree_parents(entry["first_child"].tolist(), entry["next_sibling"].tolist())
        else:
            above = chain_parents(nodes)
        length = max(1, min(int(entry["accept_len"][0]), nodes, steps + 1))
        tokens = entry["predict"].tolist()
        path = accepted_path(ids, above, tokens[: length - 1])
        if path is None:
            not_followed += 1
            path = [0]
        parents.append(above)
        accepted.append(path + [-1] * (steps + 1 - len(path)))
        bonus.append(int(tokens[length - 1]))
    if not_followed:
        lost.append(NOT_FOLLOWED.format(not_followed))

    def stacked(name: str) -> torch.Tensor:
        return torch.stack([entry[name] for entry in rounds])

    positions = stacked("node_positions").to(torch.int64)
    tensors = {
        # New memory: a file holds no two tensors of one.
        "root_positions": torch.tensor(positions[:, 0].tolist(), dtype=torch.int64),
        "node_ids": stacked("node_ids").to(torch.int64),
        "node_positions": positions,
        "node_parents": torch.tensor(parents, dtype=torch.int64),
        "target_ids": stacked("target_ids").to(torch.int64),
        "accepted_nodes": torch.tensor(accepted, dtype=torch.int64),
        "bonus_ids": torch.tensor(bonus, dtype=torch.int64),
        "aux": stacked("aux"),
    }
    in_all = set(rounds[0]).intersection(*rounds)
    for name in ("step_ids", "step_scores", "step_hidden", "final_norm"):
        if name in in_all:
            tensors[name] = stacked(name)
    if "round_numbers" in in_all:
        tensors["round_numbers"] = stacked("round_numbers")[:, 0].to(torch.int64)
    if "boundary_states" in in_all:
        tensors["boundary_states"] = stacked("boundary_states").transpose(1, 2).contiguous()
    return tensors, lost


def no_rounds(
    nodes: int, steps: int, aux_width: int, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """The tensors of a piece without a round: it only says that the request has ended."""
    by_node = torch.zeros((0, nodes), dtype=torch.int64)
    return {
        "root_positions": torch.zeros(0, dtype=torch.int64),
        "node_ids": by_node,
        "node_positions": by_node.clone(),
        "node_parents": by_node.clone(),
        "target_ids": by_node.clone(),
        "accepted_nodes": torch.zeros((0, steps + 1), dtype=torch.int64),
        "bonus_ids": torch.zeros(0, dtype=torch.int64),
        "aux": torch.zeros((0, nodes, aux_width), dtype=dtype),
    }


def boundary_fault(
    tensors: Tensors, slot_boundaries: Sequence[int], width: int, all_boundaries: Sequence[int]
) -> str | None:
    """Whether the boundaries are those that the aux states came from; a text if they are not.

    The aux states went the whole of SGLang's own way, so they judge what was read off the layers.

    Args:
        tensors: with ``aux`` [..., A * width] and ``boundary_states`` [..., B, width].
        slot_boundaries: of the aux slots. all_boundaries: of ``boundary_states``.
    """
    states = tensors.get("boundary_states")
    if states is None or not states.numel():
        return None
    for slot, boundary in enumerate(slot_boundaries):
        if boundary not in all_boundaries:
            continue
        aux = tensors["aux"][..., slot * width : (slot + 1) * width].float()
        mine = states[..., all_boundaries.index(boundary), :].float()
        apart = float((aux - mine).abs().max()) / max(float(aux.abs().max()), 1e-20)
        if not apart <= TOLERANCE:
            return DISAGREE.format(boundary, apart)
    return None
