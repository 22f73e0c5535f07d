"""The captures that the other tests are made of are right themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fixtures import held_out_prompts, materialise
from offline_captures import CaptureTarget
from rig.reference import greedy_tokens

from sglang_eagle3_probe.offline.captured import read_requests

PROMPTS, TOKENS = 2, 24
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""One token at a time and all at once sum in another order."""


@pytest.mark.parametrize("name", ["deepseek", "llama"])
def test_captures_hold_the_targets_own_greedy_text_and_states(name: str, tmp_path: Path) -> None:
    folder = materialise(name, tmp_path / "target")
    target = CaptureTarget(folder)
    prompts = held_out_prompts(PROMPTS)
    target.write(tmp_path / "captures", prompts, boundaries=(2, 0, 5), new_tokens=TOKENS)
    requests = list(read_requests(tmp_path / "captures"))
    answers = greedy_tokens(folder, [prompt.token_ids for prompt in prompts], TOKENS)
    assert len(requests) == PROMPTS
    for request, prompt, answer in zip(requests, prompts, answers, strict=True):
        length = len(prompt.token_ids) + TOKENS
        tokens = request.token_ids.tolist()
        assert tokens[:length] == [*prompt.token_ids, *answer]
        assert request.complete
        assert request.boundary_states is not None
        known = int(request.boundaries_known.sum())
        assert length - 1 <= known < len(tokens)
        whole = target.rows(tokens[:known])
        torch.testing.assert_close(request.boundary_states[:known], whole.boundaries, **CLOSE)
        torch.testing.assert_close(
            request.aux[:known], whole.boundaries[:, (2, 0, 5)].flatten(1), **CLOSE
        )
        head = target.network.lm_head(request.final_norm[:known])
        assert (
            head.argmax(-1).tolist()[len(prompt.token_ids) - 1 :]
            == tokens[len(prompt.token_ids) : known + 1]
        )
        # The last boundary is the one before the norm, whose values transformers hides.
        torch.testing.assert_close(
            target.network.model.norm(request.boundary_states[:known, -1]),
            request.final_norm[:known],
            **CLOSE,
        )
        accepted = (request.rounds["accepted_nodes"] >= 0).sum(1) - 1
        assert set(accepted.tolist()) == {0, 1, 2, 3}
