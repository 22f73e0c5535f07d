"""A captured request as rows that a draft can be run on, with what the engine drafted behind them.

Row t is position t of the target's sequence; letters as in ``reference_draft`` and ``drafting``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.checkpoint.safetensors_file import read_description
from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.captured_ranks import RanksKnown
from sglang_eagle3_probe.offline.stored_tensors import load_tensor


@dataclass(frozen=True)
class Rounds:
    """What the engine drafted in R rounds.

    Attributes:
        rows: int64 [R], the row that each round starts at: one before its root.
        node_ids: int64 [R, D-1], submitted nodes without the root. parents: of these, -1: the root.
        hidden: [R, S, K, G], recurrent states; None: not captured.
        correct: int64 [R], correct drafts. following: int64 [R], the target's token after these.
        ranks: int64 [R], of that token in the draft's distribution, as the engine's own logits have
            it; -1: not known.
    """

    rows: torch.Tensor
    node_ids: torch.Tensor
    parents: torch.Tensor
    hidden: torch.Tensor | None
    correct: torch.Tensor
    following: torch.Tensor
    ranks: torch.Tensor

    @property
    def is_chain(self) -> bool:
        """Every node hangs below the one before it."""
        count = self.node_ids.shape[1]
        return bool((self.parents == torch.arange(count) - 1).all())


@dataclass(frozen=True)
class Rows:
    """T rows from position 0 on without a hole.

    Attributes:
        ids: int64 [L], tokens of positions 0 to L-1, L > T where the answer's end is known.
        aux: [T, A*H].
        choices: int64 [L], the target's first choice for each position; -1: not known, as in the
            prompt.
        rounds: None: nothing was drafted.
        ranks: of how many rounds those are known.
        handed_ids: int64 [T], what the engine gave the draft beside the rows; -1: not known.
    """

    request: str
    ids: torch.Tensor
    aux: torch.Tensor
    choices: torch.Tensor
    rounds: Rounds | None
    ranks: RanksKnown | None
    handed_ids: torch.Tensor
    greedy: bool
    steps: int  # 0, as the two below: nothing was drafted
    topk: int
    nodes: int

    @property
    def count(self) -> int:
        """T."""
        return len(self.aux)

    def targets(self, step: int) -> torch.Tensor:
        """What step ``step`` of every row should predict, [T]; -1: the target's choice is not known
        there (the prompt, or beyond the end)."""
        found = torch.full((self.count,), -1, dtype=torch.int64)
        positions = torch.arange(self.count) + 2 + step
        known = positions < len(self.choices)
        found[known] = self.choices[positions[known]]
        return found

    def next_ids(self, steps: int, shift: int = 0) -> torch.Tensor:
        """Ids that the rows read in steps 0 to ``steps - 1``, [T + steps - 1]; 0 beyond the ends.

        Args:
            shift: read so many places further on than the token after the row.
        """
        places = torch.arange(self.count + steps - 1) + 1 + shift
        inside = (places >= 0) & (places < len(self.ids))
        return torch.where(inside, self.ids[places.clamp(0, len(self.ids) - 1)], 0)


def rows_of(request: CapturedRequest) -> Rows | str:
    """The rows of a request, or in words why it cannot be replayed."""
    known = request.aux_known & (request.token_ids[: len(request.aux_known)] >= 0)
    name = shown(request.info.request)
    gaps = (~known).nonzero()
    count = int(gaps[0]) if len(gaps) else len(known)
    if count == 0 and request.info.cached_tokens:
        return (
            f"{name}: its first {request.info.cached_tokens} tokens came from the prefix cache, so "
            "the states that the draft's own cache was made of are not known"
        )
    if count < 2:
        return f"{name}: no states from its first token on"
    unknown = (request.token_ids < 0).nonzero()
    ids = request.token_ids[: int(unknown[0])] if len(unknown) else request.token_ids
    count = min(count, len(ids) - 1)
    return Rows(
        request=name,
        ids=ids,
        aux=request.aux[:count],
        choices=_choices(request, ids),
        rounds=_rounds(request, count),
        ranks=request.ranks,
        handed_ids=_handed(request, count),
        greedy=request.info.greedy,
        **_shape(request),
    )


def _shape(request: CapturedRequest) -> dict[str, int]:
    """Steps, topk and draft tokens, read off the rounds: prefill pieces do not tell them."""
    found = request.rounds
    if not found:
        return {"steps": 0, "topk": 0, "nodes": 0}
    steps, nodes = found["accepted_nodes"].shape[1] - 1, found["node_ids"].shape[1]
    if "step_ids" in found:
        topk = found["step_ids"].shape[2]
    else:
        topk = int((found["node_parents"][:, 1:] <= 0).sum(dim=1).max())
    return {"steps": steps, "topk": topk, "nodes": nodes}


def _choices(request: CapturedRequest, ids: torch.Tensor) -> torch.Tensor:
    """The answer's tokens, which are choices when the target is greedy; else what rounds say."""
    start = request.info.prompt_tokens or _prompt_length(request)
    choices = torch.full_like(ids, -1)
    if request.info.greedy:
        choices[start:] = ids[start:]
    found = request.rounds
    if not found:
        return choices
    accepted = found["accepted_nodes"]
    rounds, depths = torch.nonzero(accepted >= 0, as_tuple=True)
    places = found["root_positions"][rounds] + depths + 1
    values = found["target_ids"][rounds, accepted[rounds, depths]]
    inside = (places < len(choices)) & (values >= 0)
    choices[places[inside]] = values[inside]
    return choices


def _prompt_length(request: CapturedRequest) -> int:
    roots = request.rounds.get("root_positions")
    return int(roots.min()) if roots is not None and len(roots) else len(request.token_ids)


def _rounds(request: CapturedRequest, count: int) -> Rounds | None:
    found = request.rounds
    if not found:
        return None
    rows = found["root_positions"] - 1
    kept = (rows >= 0) & (rows < count) & (found["node_ids"] >= 0).all(dim=1)
    if not bool(kept.any()):
        return None
    parents = found["node_parents"][kept][:, 1:]
    # Node 0 is the root; behind it, -1 and 0 both mean "below the root".
    parents = torch.where(parents <= 0, -1, parents - 1)
    hidden = found.get("step_hidden")
    return Rounds(
        rows[kept],
        found["node_ids"][kept][:, 1:],
        parents,
        hidden[kept] if hidden is not None else None,
        (found["accepted_nodes"][kept] >= 0).sum(dim=1) - 1,
        found["bonus_ids"][kept],
        found["ranks"][kept],
    )


def _handed(request: CapturedRequest, count: int) -> torch.Tensor:
    handed = torch.full((count,), -1, dtype=torch.int64)
    for path in request.paths:
        for positions, ids in _handed_of(path):
            inside = positions < count
            handed[positions[inside]] = ids[inside]
    return handed


def _handed_of(path: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    entries, _ = read_description(path, path.name)
    if "draft_input_ids" not in entries or "positions" not in entries:
        return []
    positions = load_tensor(path, "positions", entries["positions"]).to(torch.int64)
    ids = load_tensor(path, "draft_input_ids", entries["draft_input_ids"]).to(torch.int64)
    return [(positions, ids)]
