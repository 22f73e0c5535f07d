"""Sampled verification of a draft tree, and the renormalisations that come before it.

Compiled versions exist for GPUs only; SGLang verifies greedily on a CPU whatever temperature a
request asks for. The rig gives the CPU the GPU's behaviour (see ``sglang_hooks``).
Shapes as in ``tree``; W is the vocabulary.
"""

from __future__ import annotations

import torch


def top_k_renorm_prob(probs: torch.Tensor, top_ks: torch.Tensor) -> torch.Tensor:
    """Keeps the ``top_ks`` (rows,) largest probabilities of each row (rows, W), ties included."""
    ordered = probs.sort(dim=-1, descending=True).values
    last = (top_ks.long().clamp(1, probs.shape[-1]) - 1)[:, None]
    return _normalised(probs.masked_fill(probs < ordered.gather(-1, last), 0.0))


def top_p_renorm_prob(probs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """Keeps the smallest set of largest probabilities of each row whose sum reaches ``top_ps``."""
    ordered = probs.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    kept = (before < top_ps[:, None].to(probs.dtype)).sum(dim=-1, keepdim=True).clamp(min=1)
    return _normalised(probs.masked_fill(probs < ordered.gather(-1, kept - 1), 0.0))


def _normalised(probs: torch.Tensor) -> torch.Tensor:
    return probs / probs.sum(dim=-1, keepdim=True)


def tree_speculative_sampling_target_only(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Samples a path of the tree so that emitted tokens follow the target's distribution.

    At each token the children are tried in turn with one uniform number: a child is taken when
    the probability of the children tried so far, itself included, reaches it (over
    ``threshold_acc``), or when its own reaches ``threshold_single``. When none is taken, the
    token is drawn from the target's distribution without the tried children.

    candidates (B, N), uniform_samples (B, N), uniform_samples_for_final_sampling (B,),
    target_probs and draft_probs (B, N, W); draft_probs is scratch space of the compiled kernel
    and stays untouched here. Outputs as in ``tree.verify_tree_greedy_cpu``.
    Call site: ``eagle_sample`` in ``speculative/eagle_utils.py``.
    """
    longest = accept_index.shape[1]
    tokens, flat = candidates.tolist(), retrive_index.tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for request in range(len(tokens)):
        here, accepted = 0, 0
        last = flat[request][0]
        accept_index[request, 0] = last
        coin = float(uniform_samples[request, 0])
        tried: list[int] = []
        while accepted + 1 < longest:
            tried = []
            reached = 0.0
            child = children[request][here]
            while child != -1:
                token = tokens[request][child]
                probability = float(target_probs[request, here, token])
                reached += probability
                if coin <= reached / threshold_acc or probability >= threshold_single:
                    break
                tried.append(token)
                child = siblings[request][child]
            if child == -1:
                break
            predicts[last] = tokens[request][child]
            here, accepted = child, accepted + 1
            last = flat[request][here]
            accept_index[request, accepted] = last
            coin = float(uniform_samples[request, here])
            tried = []
        accept_token_num[request] = accepted

        rest = target_probs[request, here].clone()
        rest[tried] = 0.0
        cumulative = rest.cumsum(dim=0)
        target = float(uniform_samples_for_final_sampling[request]) * cumulative[-1]
        above = torch.nonzero(cumulative > target)
        predicts[last] = int(above[0]) if above.numel() else int(rest.argmax())
