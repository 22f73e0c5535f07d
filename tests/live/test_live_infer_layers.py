"""infer-layers on what a real server captured: right for the draft it served and for another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Models
from fixtures.prompts import held_out_prompts
from probed import cli, probed_pair

from sglang_eagle3_probe.trace.capture_records import Capture

REQUESTS, NEW_TOKENS = 12, 48
SERVED = [0, 3, 6]


@pytest.fixture(scope="module")
def capture(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The probe's folder of a server that captured every request with all layers."""
    prompts = [list(prompt.token_ids) for prompt in held_out_prompts(REQUESTS)]
    with probed_pair(
        models, tmp_path_factory.mktemp("infer"), extra_args=["--probe-all-layers", str(REQUESTS)]
    ) as run:
        run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        run.trace(lambda t: len(list(t.processes[0].of(Capture))) == REQUESTS)
        return run.traces


@pytest.mark.parametrize(
    ("name", "trained", "answers"),
    [
        ("deepseek-draft-embed", SERVED, ("as_served", "undecided")),
        ("deepseek-draft-default", [2, 5, 7], ("differs",)),
    ],
)
def test_the_layers_of_training_from_a_live_capture(
    name: str, trained: list[int], answers: tuple[str, ...], models: Models, capture: Path
) -> None:
    draft, target = str(models[name]), str(models["deepseek"])
    done = cli("infer-layers", str(capture), "--draft", draft, "--target", target, "--json")
    assert done.returncode in (0, 1, 2), done.stderr
    found = json.loads(done.stdout)
    assert found["answer"] in answers
    assert found["served"]["boundaries"] == SERVED
    assert found["search"]["boundaries"][0] == 0
    assert len(found["search"]["boundaries"]) >= 10
    # A dozen requests may leave a neighbour open; what was trained on is never ruled out.
    assert trained in found["possible"]
    assert found["evidence"]["requests"] == REQUESTS
    assert found["evidence"]["over_chance"]["low"] > 1
