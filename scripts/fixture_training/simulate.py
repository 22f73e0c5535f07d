"""Replay of greedy chain speculation offline, for any wiring of target and draft.

    python scripts/fixture_training/simulate.py [--draft deepseek-draft-embed] [--steps 3]

Plays what a server does at temperature 0, topk 1: the draft proposes a chain from the captured
states of the last verified token, the target verifies. Since the output is the target's greedy
continuation whatever the draft says, the target is run once and the rounds are walked through.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from fixtures.weights import load_weights  # noqa: E402

from fixture_training.draft_model import Draft  # noqa: E402
from fixture_training.generate import continue_prompts  # noqa: E402
from fixture_training.shapes import DRAFTS, TARGETS  # noqa: E402
from fixture_training.target_model import Target  # noqa: E402

MODELS = ROOT / "tests" / "fixtures" / "models"


def load_pair(draft_name: str) -> tuple[Target, Draft]:
    """The committed target and draft in float32."""
    plan = DRAFTS[draft_name]
    target, draft = Target(TARGETS[plan.target][0]), Draft(plan.shape)
    for module, name in ((target, plan.target), (draft, draft_name)):
        state = load_weights(MODELS / name)
        module.load_state_dict(
            {key: w.float() if w.is_floating_point() else w for key, w in state.items()}
        )
        module.requires_grad_(False).eval()
    return target, draft


@torch.no_grad()
def accept_lengths(
    target: Target,
    draft: Draft,
    ids: Tensor,
    prompt_length: int,
    boundaries: tuple[int, ...],
    steps: int = 3,
    fc_block_order: tuple[int, ...] | None = None,
) -> tuple[int, int]:
    """Correct drafts and verification rounds over greedy sequences ``ids`` (batch, length).

    The first new token comes from the prefill. A round that starts with x_0..x_n known has the
    captured states of 0..n-1 and proposes x_{n+1}, ...; its chain starts at row n - 1. The
    teacher-forced chain equals the served one as far as the drafts are right, and what comes
    after the first wrong draft is not counted.
    """
    states = target.boundaries(ids)
    captured = [states[h] for h in boundaries]
    if fc_block_order is not None:
        captured = [captured[i] for i in fc_block_order]
    logits = draft.chain(states[0], draft.combine(captured), steps)
    correct = rounds = 0
    for row in range(len(ids)):
        # right[k, t]: step k from row t proposes x_{t+2+k}
        last = ids.shape[1] - 2 - steps
        right = torch.stack(
            [
                draft.target_ids[step[row, : last + 1].argmax(-1)]
                == ids[row, 2 + k : 2 + k + last + 1]
                for k, step in enumerate(logits)
            ]
        )
        run = right.cumprod(0).sum(0)
        at = prompt_length - 1
        while at <= last:
            accepted = int(run[at])
            correct, rounds = correct + accepted, rounds + 1
            at += accepted + 1
    return correct, rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draft", default="deepseek-draft-embed", choices=list(DRAFTS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    target, draft = load_pair(arguments.draft)
    prompts = json.loads((ROOT / "tests/fixtures/prompts.json").read_text())["prompts"]
    ids = torch.tensor([prompt["token_ids"] for prompt in prompts])
    length = ids.shape[1] + arguments.tokens
    ids = continue_prompts(target, ids, length, 0.0, 0).ids
    trained = draft.shape.boundaries
    wirings: dict[str, tuple[int, ...]] = {
        "as trained": trained,
        "server default": target.shape.default_boundaries,
        "(0, 3, 6)": (0, 3, 6),
        "(3, 6, 9)": (3, 6, 9),
        "all one later": tuple(h + 1 for h in trained),
        "all one earlier": tuple(max(h - 1, 0) for h in trained),
        "middle one later": (trained[0], trained[1] + 1, trained[2]),
    }
    orders: dict[str, tuple[int, ...] | None] = dict.fromkeys(wirings)
    wirings["fc blocks permuted"], orders["fc blocks permuted"] = trained, (1, 2, 0)
    print(f"{arguments.draft}: trained on boundaries {trained}, {arguments.steps} steps, topk 1")
    for name, boundaries in wirings.items():
        if max(boundaries) > target.shape.num_layers - 1:
            continue
        correct, rounds = accept_lengths(
            target,
            draft,
            ids,
            len(prompts[0]["token_ids"]),
            boundaries,
            arguments.steps,
            orders[name],
        )
        print(f"  {name:20} {boundaries!s:12} accept length {1 + correct / rounds:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
