"""Real capture files without a server: a fixture target in transformers, greedy, chains verified.

Transformers hands out every boundary of the target exactly, except the last one, which it replaces
by the state after the final norm; a hook reads that one before the norm.

    target = CaptureTarget(materialise("deepseek", tmp_path / "target"))
    target.write(tmp_path / "captures", held_out_prompts(4), boundaries=(0, 3, 6), new_tokens=96)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fixtures.prompts import Prompt
from transformers import AutoModelForCausalLM, DynamicCache

from sglang_eagle3_probe.capture.layout import PieceInfo, piece_name
from sglang_eagle3_probe.capture.writing import write_piece

Propose = Callable[[list[int], torch.Tensor], Sequence[int]]
"""Known tokens x_0..x_n and the aux states [n, A*H] of x_0..x_{n-1} -> the chain's draft ids."""

CORRECT_DRAFTS = (3, 1, 0, 2, 3, 0, 1)
"""Without a draft: how many ids of each round's chain are right, in turn."""


@dataclass(frozen=True)
class Rows:
    """What the target computed for some tokens in a row.

    Attributes:
        boundaries: [T, N+1, H], all of them, the last one before the final norm.
        final_norm: [T, H].
        choice: int64 [T], the greedy next token.
    """

    boundaries: torch.Tensor
    final_norm: torch.Tensor
    choice: torch.Tensor


class CaptureTarget:
    """A target that writes what a server at level capture would.

    Args:
        folder: of a materialised fixture target.
    """

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)  # more threads only wait for each other on a busy machine
        self.folder = folder
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.config = self.network.config
        self._last: list[torch.Tensor] = []
        self.network.model.layers[-1].register_forward_hook(self._keep)

    def _keep(self, _module: Any, _given: Any, output: Any) -> None:
        self._last[:] = [output if isinstance(output, torch.Tensor) else output[0]]

    @torch.inference_mode()
    def rows(self, ids: Sequence[int], cache: DynamicCache | None = None) -> Rows:
        """One forward of ``ids``, after what is in ``cache`` already."""
        output = self.network(
            input_ids=torch.tensor([list(ids)]),
            past_key_values=cache,
            use_cache=cache is not None,
            output_hidden_states=True,
        )
        *before, final = output.hidden_states
        return Rows(
            torch.stack([state[0] for state in (*before, self._last[0])], dim=1),
            final[0],
            output.logits[0].argmax(-1),
        )

    def answer(self, prompt: Sequence[int], new_tokens: int) -> list[int]:
        """The greedy continuation, going on past any end token."""
        cache, given, tokens = DynamicCache(), list(prompt), list[int]()
        while len(tokens) < new_tokens:
            tokens.append(int(self.rows(given, cache).choice[-1]))
            given = tokens[-1:]
        return tokens

    def write(
        self,
        folder: Path,
        prompts: Iterable[Prompt | Sequence[int]],
        *,
        boundaries: Sequence[int],
        new_tokens: int,
        steps: int = 3,
        propose: Propose | None = None,
        all_boundaries: bool = True,
        dtype: torch.dtype = torch.float32,
        rounds_a_piece: int = 16,
        draft: str = "",
        draft_vocabulary: int = 0,
    ) -> Path:
        """Captures one request a prompt, and returns ``folder``.

        Args:
            boundaries: of the aux slots, h, in the order of the concatenation.
            new_tokens: at least so many are emitted after the prompt.
            propose: the draft; without it the chains hold the target's own tokens as far as
                ``CORRECT_DRAFTS`` says and wrong ones after.
            all_boundaries: also write ``boundary_states`` (0 to N) and ``final_norm``.
            dtype: of the written states.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for number, given in enumerate(prompts):
            prompt = list(given.token_ids if isinstance(given, Prompt) else given)
            told = propose or self._oracle(prompt, new_tokens + steps + 1)
            described = {
                "request": f"request-{number}",
                "boundaries": list(boundaries),
                "hidden_width": self.config.hidden_size,
                "dtype": str(dtype).removeprefix("torch."),
                "all_boundaries": list(range(self.config.num_hidden_layers + 1))
                if all_boundaries
                else [],
                "steps": steps,
                "topk": 1,
                "num_draft_tokens": steps + 1,
                "prompt_tokens": len(prompt),
                "num_layers": self.config.num_hidden_layers,
                "vocabulary": self.config.vocab_size,
                "draft_vocabulary": draft_vocabulary,
                "target": str(self.folder),
                "target_class": self.config.architectures[0],
                "draft": draft,
                "draft_class": "LlamaForCausalLMEagle3",
                "sglang": "0.5.23",
            }
            pieces = self._pieces(prompt, new_tokens, told, tuple(boundaries), steps)
            groups: list[tuple[str, dict[str, torch.Tensor]]] = [("prefill", next(pieces))]
            rounds = list(pieces)
            for start in range(0, len(rounds), rounds_a_piece):
                part = rounds[start : start + rounds_a_piece]
                groups.append(("rounds", {k: torch.stack([r[k] for r in part]) for k in part[0]}))
            for piece, (kind, tensors) in enumerate(groups):
                if not all_boundaries:
                    del tensors["boundary_states"], tensors["final_norm"]
                first = tensors["positions" if kind == "prefill" else "root_positions"]
                info = PieceInfo(
                    kind=kind,  # type: ignore[arg-type]
                    piece=piece,
                    last=piece == len(groups) - 1,
                    first_position=int(first[0]),
                    **described,  # type: ignore[arg-type]
                )
                stored = {
                    k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()
                }
                write_piece(folder / piece_name(number, piece, "host-1-tp0"), info, stored)
        return folder

    @torch.inference_mode()
    def write_at_once(
        self,
        folder: Path,
        prompts: Sequence[Prompt],
        *,
        boundaries: Sequence[int],
        new_tokens: int,
        final_norm: bool = True,
    ) -> Path:
        """The same states in less time: one piece a request, its answer in the same forward.

        Args:
            prompts: of one length.
            final_norm: also write the state after the last norm.
        """
        folder.mkdir(parents=True, exist_ok=True)
        step = torch.tensor([prompt.token_ids for prompt in prompts])
        whole, cache = step, DynamicCache()
        for _ in range(new_tokens):
            output = self.network(input_ids=step, past_key_values=cache, use_cache=True)
            step = output.logits[:, -1:].argmax(-1)
            whole = torch.cat([whole, step], dim=1)
        layers = self.config.num_hidden_layers
        for number, (prompt, ids) in enumerate(zip(prompts, whole, strict=True)):
            rows = self.rows(ids[:-1].tolist())
            info = PieceInfo(
                kind="prefill",
                request=f"request-{number}",
                piece=0,
                last=True,
                boundaries=list(boundaries),
                hidden_width=self.config.hidden_size,
                dtype="float32",
                all_boundaries=list(range(layers + 1)),
                prompt_tokens=len(prompt.token_ids),
                num_layers=layers,
                vocabulary=self.config.vocab_size,
                target=str(self.folder),
                target_class=self.config.architectures[0],
                sglang="0.5.23",
            )
            tensors = {
                "token_ids": ids[:-1],
                "positions": torch.arange(len(ids) - 1),
                "aux": rows.boundaries[:, list(boundaries)].flatten(1),
                "boundary_states": rows.boundaries,
                "next_id": ids[-1:],
            }
            if final_norm:
                tensors["final_norm"] = rows.final_norm
            write_piece(folder / piece_name(number, 0, "host-1-tp0"), info, tensors)
        return folder

    def _oracle(self, prompt: list[int], new_tokens: int) -> Propose:
        tokens = prompt + self.answer(prompt, new_tokens)
        turn = iter(CORRECT_DRAFTS * new_tokens)

        def propose(known: list[int], _aux: torch.Tensor) -> list[int]:
            right = next(turn)
            chain = tokens[len(known) : len(known) + max(CORRECT_DRAFTS)]
            wrong = [(token + 1) % self.config.vocab_size for token in chain[right:]]
            return chain[:right] + wrong

        return propose

    def _pieces(
        self,
        prompt: list[int],
        new_tokens: int,
        propose: Propose,
        slots: tuple[int, ...],
        steps: int,
    ) -> Any:
        """The prefill's tensors, then those of each round."""
        cache = DynamicCache()
        rows = self.rows(prompt, cache)
        aux = rows.boundaries[:, slots].flatten(1)
        known = [*prompt, int(rows.choice[-1])]
        yield {
            "prompt_ids": torch.tensor(prompt),
            "token_ids": torch.tensor(prompt),
            "positions": torch.arange(len(prompt)),
            "aux": aux,
            "draft_input_ids": torch.tensor(known[1:]),
            "boundary_states": rows.boundaries,
            "final_norm": rows.final_norm,
            "next_id": torch.tensor(known[-1:]),
        }
        while len(known) < len(prompt) + new_tokens:
            root, chain = len(known) - 1, list(propose(known, aux))[:steps]
            nodes = [known[-1], *chain]
            rows = self.rows(nodes, cache)
            choices = rows.choice.tolist()
            correct = 0
            while correct < len(chain) and chain[correct] == choices[correct]:
                correct += 1
            accepted = list(range(correct + 1)) + [-1] * (steps - correct)
            node_aux = rows.boundaries[:, slots].flatten(1)
            yield {
                "root_positions": torch.tensor(root),
                "node_ids": torch.tensor(nodes),
                "node_positions": torch.arange(root, root + len(nodes)),
                "node_parents": torch.arange(-1, len(nodes) - 1),
                "target_ids": rows.choice,
                "accepted_nodes": torch.tensor(accepted),
                "bonus_ids": torch.tensor(choices[correct]),
                "aux": node_aux,
                "boundary_states": rows.boundaries,
                "final_norm": rows.final_norm,
            }
            aux = torch.cat([aux, node_aux[: correct + 1]])
            known += [*chain[:correct], choices[correct]]
            if correct < len(chain):
                cache.crop(correct - len(chain))  # negative: takes so many refused nodes away
