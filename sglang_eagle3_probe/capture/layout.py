"""What is in a capture file: one piece of one request, as safetensors with a JSON description.

A request is a row of pieces, numbered in the order they ran: ``prefill`` pieces (one for each chunk
of the prompt), then ``rounds`` pieces (some verify rounds each). A request that was retracted goes
on with another prefill piece, over its prompt and its answer so far. Letters in shapes:

- T rows of a prefill piece, P prompt tokens, R verify rounds of a piece
- D nodes of a verify round's tree (``speculative_num_draft_tokens``; node 0 is the root, the token
  that the round before emitted), S draft steps, K topk
- A aux slots, H hidden size of the target, G hidden size of the draft
- B boundaries of ``all_boundaries``

Positions are of the target's sequence, counted from 0. All ids are target ids; -1 is "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

FORMAT = 1
METADATA_KEY = "eagle3_probe_capture"
SUFFIX = ".safetensors"

Kind = Literal["prefill", "rounds"]


class PieceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON description of one piece, under ``METADATA_KEY`` of the file's metadata.

    ``first_position``: of the first row (prefill), or of the first round's root.
    ``cached_tokens``: prompt tokens before ``first_position`` that came from the prefix cache;
    their aux states were not computed in this request and are missing (prefill piece 0 only).
    ``lost``: what should be in this piece and is not, in words; readers show it.
    ``boundaries``: of the aux slots in the order of the concatenation, h (0 = embedding output).
    ``all_boundaries``: of the rows of ``boundary_states``; empty without.
    ``dtype``: of the states, as torch names it, such as ``bfloat16``.
    ``output_tokens``: of the answer, in the last piece: the last round may have added more, which
    the request's end cut off; ``None`` in every other piece.
    """

    kind: Kind
    request: str
    piece: int
    boundaries: list[int]
    hidden_width: int
    dtype: str
    format: int = FORMAT
    last: bool = False
    first_position: int = 0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    more_chunks: bool = False
    lost: list[str] = []
    all_boundaries: list[int] = []
    draft_hidden_width: int = 0
    steps: int = 0
    topk: int = 0
    num_draft_tokens: int = 0
    greedy: bool = True
    temperature: float = 0.0
    num_layers: int = 0
    vocabulary: int = 0
    draft_vocabulary: int = 0
    target: str = ""
    draft: str = ""
    target_class: str = ""
    draft_class: str = ""
    sglang: str = ""
    tp_rank: int = 0
    tp_size: int = 1
    dp_rank: int = 0
    context_length: int = 0
    output_tokens: int | None = None


@dataclass(frozen=True)
class TensorRule:
    """What a tensor must look like. ``shape`` holds letters of this module's docstring."""

    shape: tuple[str, ...]
    kind: Literal["ids", "states", "scores"]
    required: bool
    meaning: str


PREFILL: Mapping[str, TensorRule] = {
    "prompt_ids": TensorRule(("P",), "ids", False, "the whole prompt; piece 0 only"),
    "token_ids": TensorRule(("T",), "ids", True, "tokens whose target forward this piece ran"),
    "positions": TensorRule(("T",), "ids", True, "their positions"),
    "aux": TensorRule(("T", "A*H"), "states", True, "concatenation exactly as handed to the draft"),
    "draft_input_ids": TensorRule(
        ("T",), "ids", False, "ids handed to the draft beside the rows of aux"
    ),
    "boundary_states": TensorRule(("T", "B", "H"), "states", False, "boundaries of the target"),
    "final_norm": TensorRule(("T", "H"), "states", False, "the last layer's output after the norm"),
    "next_id": TensorRule(("1",), "ids", False, "token sampled after the last row"),
}

ROUNDS: Mapping[str, TensorRule] = {
    "root_positions": TensorRule(("R",), "ids", True, "positions of the roots"),
    "node_ids": TensorRule(("R", "D"), "ids", True, "the submitted tree, root first"),
    "node_positions": TensorRule(("R", "D"), "ids", True, "positions of the nodes"),
    "node_parents": TensorRule(("R", "D"), "ids", True, "node index of the parent; -1: the root"),
    "target_ids": TensorRule(
        ("R", "D"), "ids", True, "the target's argmax after each node; sampling may choose others"
    ),
    "accepted_nodes": TensorRule(
        ("R", "S+1"), "ids", True, "node indices of the accepted path, root first, padded with -1"
    ),
    "bonus_ids": TensorRule(("R",), "ids", True, "token that each round added after that path"),
    "aux": TensorRule(("R", "D", "A*H"), "states", True, "concatenation, one row a node"),
    "boundary_states": TensorRule(("R", "D", "B", "H"), "states", False, "as in prefill"),
    "final_norm": TensorRule(("R", "D", "H"), "states", False, "as in prefill"),
    "step_ids": TensorRule(("R", "S", "K"), "ids", False, "each draft step's candidates kept"),
    "step_scores": TensorRule(("R", "S", "K"), "scores", False, "their scores as SGLang has them"),
    "step_hidden": TensorRule(
        ("R", "S", "K", "G"), "states", False, "the draft's recurrent state that each came from"
    ),
    "round_numbers": TensorRule(
        ("R",), "ids", False, "of the round within its request, from 0, as the trace counts them"
    ),
}  # fmt: skip


def rules_of(kind: Kind) -> Mapping[str, TensorRule]:
    """Name -> rule of a piece of this kind."""
    return PREFILL if kind == "prefill" else ROUNDS


def shape_fault(info: PieceInfo, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """What is wrong with a piece's tensors, or ``None``.

    Args:
        shapes: name -> shape of every tensor of the file.
    """
    rules = rules_of(info.kind)
    sizes: dict[str, int] = {
        "1": 1,
        "A*H": len(info.boundaries) * info.hidden_width,
        "H": info.hidden_width,
        "B": len(info.all_boundaries),
    }
    if info.draft_hidden_width:
        sizes["G"] = info.draft_hidden_width
    if info.steps:
        sizes |= {"S": info.steps, "S+1": info.steps + 1}
    if info.topk:
        sizes["K"] = info.topk
    if info.num_draft_tokens:
        sizes["D"] = info.num_draft_tokens
    missing = [name for name, rule in rules.items() if rule.required and name not in shapes]
    if missing:
        return f"has no {', '.join(missing)}"
    for name, shape in shapes.items():
        rule = rules.get(name)
        if rule is None:
            continue
        expected = "[" + ", ".join(rule.shape) + "]"
        if len(shape) != len(rule.shape):
            return f"{name} has shape {list(shape)}, expected {expected}"
        for letter, size in zip(rule.shape, shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known != size:
                return (
                    f"{name} has shape {list(shape)}, expected {expected} with {letter} = {known}"
                )
    return None


def piece_name(request_number: int, piece: int, process: str) -> str:
    """File name: sorts by request, then by piece.

    Args:
        request_number: of the captured request in this process, from 0.
        process: what tells processes apart, such as ``host-4711-tp0``.
    """
    return f"capture-{process}-{request_number:06d}-{piece:04d}{SUFFIX}"
