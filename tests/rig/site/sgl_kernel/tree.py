"""EAGLE draft trees: building their tables and walking them in greedy verification.

Shapes: B requests, N = ``draft_token_num`` tree tokens per request (token 0 is the root, the
last accepted token), S longest path counting the root. ``retrive_next_token[b, i]`` is the
first child of token i, ``retrive_next_sibling[b, i]`` its next sibling, -1 where there is none
(SGLang spells it "retrive" in these signatures). Children are tried in order of their index,
which is the order of the draft's scores within one level.

``selected_index`` (B, N - 1) are positions of the kept candidates in the flat list of all
candidates: ``topk`` of step 1, then ``topk * topk`` for every later step. ``parent_list``
maps a group of ``topk`` siblings to the flat position of their parent: column 0 stands for the
root, and so does every candidate of step 1.
"""

from __future__ import annotations

import torch

FULL_MASK = 0
QLEN_ONLY = 1


def _parents(parent_list: list[int], selected: list[int], topk: int) -> list[int]:
    """Parent (index into the tree, 0 = root) of tree tokens 1..N-1; -1 when it was not kept."""
    place = {candidate: i + 1 for i, candidate in reversed(list(enumerate(selected)))}
    parents = []
    for candidate in selected:
        group = candidate // topk
        parents.append(0 if group == 0 else place.get(parent_list[group], -1))
    return parents


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fills mask, positions and links of the draft tree, all in place.

    tree_mask: flat bool, (B, N, N) for QLEN_ONLY (what the CPU back end asks for), or for
    FULL_MASK per request (N, seq_len + N), whose prefix part is left as it is. positions
    (B * N,). retrive_* (B, N), prefilled with -1.
    Call site: ``build_tree_kernel_efficient_func``.
    """
    if tree_mask_mode not in (FULL_MASK, QLEN_ONLY):
        raise NotImplementedError(f"the CPU rig has no tree mask mode {tree_mask_mode}")
    count = draft_token_num
    offset = 0
    for request, length in enumerate(verified_seq_len.tolist()):
        parents = _parents(parent_list[request].tolist(), selected_index[request].tolist(), topk)
        mask = torch.eye(count, dtype=torch.bool)
        levels = [0] * count
        for token in range(1, count):
            parent = parents[token - 1]
            if parent >= 0:
                mask[token] |= mask[parent]
                levels[token] = levels[parent] + 1
            else:
                levels[token] = 1
            mask[token, 0] = True

        prefix = length if tree_mask_mode == FULL_MASK else 0
        block = tree_mask[offset : offset + count * (prefix + count)]
        block.view(count, prefix + count)[:, prefix:] = mask
        offset += count * (prefix + count)

        positions[request * count : (request + 1) * count] = length + torch.tensor(levels)
        retrive_index[request] = request * count + torch.arange(count)
        for token in range(count - 1, 0, -1):
            parent = parents[token - 1]
            if parent >= 0:
                retrive_next_sibling[request, token] = retrive_next_token[request, parent]
                retrive_next_token[request, parent] = token


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Follows the target's argmax down the tree as long as a child carries that token.

    candidates and target_predict (B, N); predicts (B * N,), accept_index (B, S) and
    accept_token_num (B,) are written: the predicted token at every accepted place, the accepted
    places (flat indices, the root first) and the number of accepted drafts without the root.
    Call site: ``verify_tree_greedy_func``.
    """
    longest = accept_index.shape[1]
    tokens, wanted = candidates.tolist(), target_predict.tolist()
    flat, children, siblings = (
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
    )
    for request in range(len(tokens)):
        here, accepted = 0, 0
        accept_index[request, 0] = flat[request][0]
        predicts[flat[request][0]] = wanted[request][0]
        while accepted + 1 < longest:
            child = children[request][here]
            while child != -1 and tokens[request][child] != wanted[request][here]:
                child = siblings[request][child]
            if child == -1:
                break
            here, accepted = child, accepted + 1
            accept_index[request, accepted] = flat[request][here]
            predicts[flat[request][here]] = wanted[request][here]
        accept_token_num[request] = accepted
