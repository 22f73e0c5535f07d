"""Capture files as an engine would write them, from the fixture models: no server, no package code.

The target is run by Transformers; the draft by the class that trained it, which shares nothing with
the code under test. What an engine may get wrong can be switched on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from sglang_eagle3_probe.capture.layout import PieceInfo, piece_name
from sglang_eagle3_probe.capture.writing import write_piece

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from fixture_training.draft_model import Draft, StepKeys  # noqa: E402
from fixture_training.shapes import DRAFTS  # noqa: E402

STEPS = 3
DRAFTING = ("steps", "topk", "num_draft_tokens", "draft_hidden_width")
"""What a prefill piece does not tell."""


@dataclass(frozen=True)
class Engine:
    """Faults of an engine; none by default."""

    boundaries: tuple[int, ...] | None = None
    slot_order: tuple[int, ...] | None = None
    shift: int = 0
    shifted: Literal["rows", "prompt", "steps"] = "rows"
    """Where: beside all rows, beside those of the prompt alone, or in the steps of chains too."""
    fc: bool = True
    direct_map: bool = False
    last_norm: bool = True
    theta: float = 10000.0
    norm_output: bool = False
    rounded: bool = False
    """Logits rounded to bfloat16, so that near ones tie and the first of them wins."""


@dataclass
class Texts:
    """Greedy answers of a target with the states behind them; prompts of one length."""

    prompts: list[list[int]]
    ids: list[list[int]] = field(default_factory=list)
    states: list[list[Tensor]] = field(default_factory=list)

    @classmethod
    @torch.inference_mode()
    def of(cls, target: Path, prompts: Sequence[Sequence[int]], new_tokens: int) -> Texts:
        torch.set_num_threads(1)
        network = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
        found = cls([list(prompt) for prompt in prompts])
        ids, cache = torch.tensor(found.prompts), None
        step = ids
        for _ in range(new_tokens):
            output = network(input_ids=step, past_key_values=cache, use_cache=True)
            cache, step = output.past_key_values, output.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, step], dim=1)
        found.ids = ids.tolist()
        # Boundary h is entry h of the tuple, but for the last one, which is behind the norm.
        states = network(input_ids=ids, output_hidden_states=True).hidden_states
        found.states = [[state[row] for state in states] for row in range(len(ids))]
        return found


def load_draft(folder: Path, name: str, theta: float = 10000.0) -> Draft:
    """The draft as the trainer's class; tensors that the folder lacks keep a server's ones."""
    from safetensors.torch import load_file

    draft = Draft(DRAFTS[name].shape)
    result = draft.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not result.unexpected_keys
    size = draft.shape.head_dim
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.arange(len(draft.cos), dtype=torch.float32)[:, None] * frequencies
    draft.cos.copy_(angles.cos())
    draft.sin.copy_(angles.sin())
    return draft.requires_grad_(False).eval()


@torch.no_grad()
def drafted(
    draft: Draft, table: Tensor, ids: Tensor, aux: Tensor, prompt: int, engine: Engine
) -> tuple[Tensor, Tensor]:
    """What a chain behind every row drafts, [T, S], and its recurrent states [T, S, G]."""
    rows = len(aux)
    if not engine.last_norm:
        draft.norm.forward = lambda x: x  # type: ignore[method-assign]
    hidden = draft.fc(aux)[None] if engine.fc else aux[None, :, : draft.shape.hidden_size]
    shift = torch.full((rows,), engine.shift)
    if engine.shifted == "prompt":
        shift[prompt:] = 0
    places = torch.arange(rows) + 1 + shift
    read = ids[places.clamp(0, len(ids) - 1)]
    steps = StepKeys([], [])
    mask = torch.full((rows, rows), float("-inf")).triu(1)
    tokens, states = [], []
    for _ in range(STEPS):
        logits, hidden = draft.step(
            table[read.clamp(max=len(table) - 1)][None], hidden, steps, mask
        )
        if engine.norm_output:
            hidden = draft.norm(hidden)
        best = (logits.bfloat16() if engine.rounded else logits)[0].argmax(-1)
        tokens.append(draft.d2t[best] if engine.direct_map else draft.target_ids[best])
        read = tokens[-1]
        if engine.shifted == "steps":
            assert engine.shift == -1
            read = (
                tokens[-2]
                if len(tokens) > 1
                else ids[(torch.arange(rows) + 1).clamp(max=len(ids) - 1)]
            )
        states.append(hidden[0])
    return torch.stack(tokens, 1), torch.stack(states, 1)


def capture(
    folder: Path,
    texts: Texts,
    table: Tensor,
    draft: Draft,
    boundaries: tuple[int, ...],
    engine: Engine,
    *,
    with_hidden: bool = True,
) -> Path:
    """Writes each text as a prefill piece and one piece of rounds. ``table``: the embedding."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (prompt, all_ids, states) in enumerate(
        zip(texts.prompts, texts.ids, texts.states, strict=True)
    ):
        ids = torch.tensor(all_ids)
        served = engine.boundaries or boundaries
        order = engine.slot_order or tuple(range(len(served)))
        aux = torch.cat([states[served[slot]] for slot in order], dim=-1)
        tokens, hidden = drafted(draft, table, ids, aux, len(prompt), engine)
        info: dict[str, Any] = {
            "request": f"request {number}", "boundaries": list(served),
            "dtype": "bfloat16" if engine.rounded else "float32",
            "hidden_width": states[0].shape[1], "steps": STEPS, "topk": 1,
            "num_draft_tokens": STEPS + 1, "draft_hidden_width": hidden.shape[-1],
            "prompt_tokens": len(prompt),
        }  # fmt: skip
        _prefill(folder, number, info, prompt, ids, aux, engine)
        _rounds(
            folder, number, info, len(prompt), ids, aux, tokens, hidden if with_hidden else None
        )
    return folder


def _prefill(
    folder: Path, number: int, info: dict[str, Any], prompt: list[int], ids: Tensor,
    aux: Tensor, engine: Engine,
) -> None:  # fmt: skip
    count = len(prompt)
    handed = ids[(torch.arange(count) + 1 + engine.shift).clamp(min=0)]
    write_piece(
        folder / piece_name(number, 0, "test"),
        PieceInfo(kind="prefill", piece=0, **{k: v for k, v in info.items() if k not in DRAFTING}),
        {
            "prompt_ids": ids[:count].clone(), "token_ids": ids[:count].clone(),
            "positions": torch.arange(count), "aux": aux[:count].clone(),
            "draft_input_ids": handed, "next_id": ids[count : count + 1].clone(),
        },
    )  # fmt: skip


def _rounds(
    folder: Path, number: int, info: dict[str, Any], start: int, ids: Tensor, aux: Tensor,
    tokens: Tensor, hidden: Tensor | None,
) -> None:  # fmt: skip
    roots, accepted = [], []
    at = start
    while at + STEPS + 1 < len(ids):
        right = int((tokens[at - 1] == ids[at + 1 : at + 1 + STEPS]).int().cumprod(0).sum())
        roots.append(at)
        accepted.append(list(range(right + 1)) + [-1] * (STEPS - right))
        at += right + 1
    root, nodes = torch.tensor(roots), STEPS + 1
    node_ids = torch.cat([ids[root][:, None], tokens[root - 1]], 1)
    places = root[:, None] + torch.arange(nodes)
    count = (torch.tensor(accepted) >= 0).sum(1)
    tensors = {
        "root_positions": root, "node_ids": node_ids, "node_positions": places,
        "node_parents": (torch.arange(nodes) - 1).expand(len(root), -1).contiguous(),
        "target_ids": ids[places + 1], "accepted_nodes": torch.tensor(accepted),
        "bonus_ids": ids[root + count], "aux": aux[places].contiguous(),
        "step_ids": tokens[root - 1][..., None].contiguous(),
    }  # fmt: skip
    if hidden is not None:
        tensors["step_hidden"] = hidden[root - 1][:, :, None].contiguous()
    write_piece(
        folder / piece_name(number, 1, "test"),
        PieceInfo(kind="rounds", piece=1, last=True, first_position=start, **info),
        tensors,
    )


def embedding_of(target: Path) -> Tensor:
    """The target's table, and zeros for ids beyond it, which a wrong map makes."""
    from safetensors.torch import load_file

    table = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    return torch.cat([table, torch.zeros(1, table.shape[1])])


def prompts(count: int) -> list[list[int]]:
    """The fixtures' prompts."""
    found = json.loads((ROOT / "tests/fixtures/prompts.json").read_text())["prompts"]
    return [prompt["token_ids"] for prompt in found[:count]]
