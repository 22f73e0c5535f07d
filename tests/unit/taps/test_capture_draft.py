"""What is kept of each draft step, as the V2 worker's loop passes the taps."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from sglang_eagle3_probe.device.draft_steps import DraftSteps
from sglang_eagle3_probe.taps.capture_draft import DraftStepsTap

sys.path.insert(0, str(Path(__file__).parent))
from test_phase_times import Mode, Site
from test_refusals_tap import call

G, STEPS = 3, 3


class Loop:
    """Two requests; each step's states and candidates tell the step."""

    def __init__(self, topk: int) -> None:
        session = SimpleNamespace(
            guard=SimpleNamespace(site=lambda name: Site(name)), target_logits={"target"}
        )
        self.topk = topk
        self.tap = DraftStepsTap(session)  # type: ignore[arg-type]
        worker = SimpleNamespace(speculative_num_steps=STEPS, topk=topk)
        self.tap.start(worker, 4)

    def rows(self, step: int) -> torch.Tensor:
        return (10.0 * step + torch.arange(2 * self.topk))[:, None].expand(-1, G).contiguous()

    def run(self, tap: Any, mine: Any, result: Any = None) -> None:
        tap.run(lambda _call: result, mine)

    def round(self, *, selects: bool) -> DraftSteps:
        handed = torch.tensor([[100.0] * G, [101.0] * G])
        info = SimpleNamespace(hidden_states=handed)
        batch = SimpleNamespace(spec_info=info, reqs=["a", "b"], forward_mode=Mode("DECODE"))
        self.run(self.tap.draft, call(batch=batch))
        self.run(self.tap.begin, call(forward_batch=None))
        for step in range(STEPS):
            if selects:
                ids = 1000 * step + torch.arange(2 * self.topk)
                scores = ids.view(2, self.topk).float()
                self.run(self.tap.select, call(i=step), (ids, self.rows(step), scores, ()))
            if step < STEPS - 1:
                output = SimpleNamespace(hidden_states=-self.rows(step + 1))
                meta = SimpleNamespace(forward_mode=Mode("DECODE"))
                self.run(self.tap.logits, call("draft", logits_metadata=meta), output)
                self.run(self.tap.logits, call("target", logits_metadata=meta), output)
        assert self.tap.steps is not None
        return self.tap.steps


def test_a_chains_states_come_from_the_extend_and_from_each_forward() -> None:
    for selects in (False, True):
        loop = Loop(1)
        steps = loop.round(selects=selects)
        assert steps.has("hidden", STEPS)
        assert steps.hidden[:, 1, 0, 0].tolist() == [101.0, -11.0, -21.0]
        assert steps.has("scores", STEPS) == steps.has("ids", STEPS) == selects
        assert loop.tap.width == G
        again = loop.round(selects=selects)
        assert again is steps
        assert again.hidden[:, 0, 0, 0].tolist() == [100.0, -10.0, -20.0]


def test_a_trees_are_those_that_were_selected() -> None:
    steps = Loop(2).round(selects=True)
    assert all(steps.has(name, STEPS) for name in ("ids", "scores", "hidden"))
    assert steps.ids[:, 1].tolist() == [[2, 3], [1002, 1003], [2002, 2003]]
    assert steps.scores[2, 0].tolist() == [2000.0, 2001.0]
    assert steps.hidden[:, 1, :, 0].tolist() == [[2.0, 3.0], [12.0, 13.0], [22.0, 23.0]]


def test_before_the_worker_is_known_nothing_is_kept() -> None:
    loop = Loop(1)
    loop.tap._worker = None
    loop.run(loop.tap.select, call(i=0), (torch.arange(2), loop.rows(0), torch.ones(2, 1), ()))
    assert loop.tap.steps is None
