"""Captures of real servers replayed: a healthy one, one with wrong layers, one with a wrong map."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import cli, probed
from rig.server import SITE, Generation

SPOILER = Path(__file__).with_name("spoiler")
STEPS = 3


def replayed(
    models: Models,
    draft: Path,
    prompts: list[list[int]],
    place: Path,
    *more: str,
    environment: Mapping[str, str] | None = None,
    ranks: bool = False,
) -> tuple[list[Generation], dict[str, Any], int]:
    """Serve, capture, and replay: the answers, the JSON, and the exit code.

    Args:
        ranks: look at every round, and serve on until all captured ones have left the device.
    """
    variables = {"level": "capture", "capture_first": str(len(prompts)), "capture_every": "0"}
    if ranks:
        variables["refusal_every"] = "1"
    with probed(
        models["deepseek"],
        draft,
        place,
        variables=variables,
        extra_args=["--disable-radix-cache"],
        extra_env=dict(environment or {}),
    ) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        run.captured(answers)
        for _ in range(3 if ranks else 0):
            run.server.generate(prompts[:1], max_new_tokens=2 * NEW_TOKENS, ignore_eos=True)
    done = cli(
        "replay", str(run.traces), "--draft", str(draft), "--target", str(models["deepseek"]),
        "--json", "--rows", "384", "--threads", "1", *more,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return answers, json.loads(done.stdout), done.returncode


@pytest.fixture(scope="module")
def healthy(
    models: Models, prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Generation], dict[str, Any], int]:
    draft = models.variant("deepseek-draft-embed", "as-boundaries", aux_layer_ids=[0, 3, 6])
    return replayed(models, draft, prompts, tmp_path_factory.mktemp("replay-healthy"), ranks=True)


def test_every_draft_token_of_a_healthy_server_is_the_replays(
    healthy: tuple[list[Generation], dict[str, Any], int],
) -> None:
    answers, found, code = healthy
    assert (found["verdict"]["kind"], code) == ("healthy", 0), found["verdict"]
    rounds = sum(int(a.meta_info["spec_verify_ct"]) for a in answers)
    assert found["rounds"] == rounds
    steps = found["as_configured"]["engine"]
    assert len(steps) == STEPS
    for step in steps:
        assert step["compared"] == rounds
        assert step["same"] + step["ties"] == rounds
    assert found["first_difference"] is None
    assert max(found["hidden_errors"]) < 1e-4


def test_ranks_of_refused_drafts_are_the_replays(
    healthy: tuple[list[Generation], dict[str, Any], int],
) -> None:
    """The engine's come from its logits, through a kernel's twin and the trace; the replay's from
    weights and captured states alone."""
    answers, found, _ = healthy
    ranks = found["ranks"]
    histograms = [a.meta_info["spec_correct_drafts_histogram"] for a in answers]
    refused = sum(count for its in histograms for k, count in enumerate(its) if k < STEPS)
    assert ranks["refused"] == ranks["told"] == refused
    assert ranks["why_not_told"] == ""
    # The others' tokens are not in the draft vocabulary.
    assert refused > ranks["known"] == ranks["compared"] > refused / 2
    assert ranks["same"] + ranks["ties"] == ranks["compared"]
    assert ranks["same"] > 0.9 * ranks["compared"]


def test_free_running_accuracy_is_what_the_server_accepted(
    healthy: tuple[list[Generation], dict[str, Any], int],
) -> None:
    answers, found, _ = healthy
    accepted = sum(int(a.meta_info["spec_num_correct_drafts"]) for a in answers)
    hits = [share["hits"] for share in found["free_running"]]
    assert hits[0] <= accepted <= sum(hits)


def test_a_lost_embedding_is_named(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    draft = models.variant("deepseek-draft-embed", "without-embedding", aux_layer_ids=[3, 6, 9])
    _, found, code = replayed(models, draft, prompts, tmp_path)
    assert (found["verdict"]["kind"], code) == ("states", 1)
    assert "(boundaries 0, 3, 6)" in found["verdict"]["sentence"]
    assert "eagle_aux_hidden_state_layer_ids to [0, 3, 6]" in found["verdict"]["fix"]
    assert found["boundaries"] == [3, 6, 9]
    assert all(s["same"] + s["ties"] == s["compared"] for s in found["as_configured"]["engine"])


def test_a_map_read_wrongly_by_the_engine_is_named(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    draft = models.variant("deepseek-draft-embed", "as-boundaries", aux_layer_ids=[0, 3, 6])
    path = os.pathsep.join([str(SITE), str(SPOILER), os.environ.get("PYTHONPATH", "")])
    _, found, code = replayed(
        models, draft, prompts[:4], tmp_path,
        environment={"REPLAY_SPOILER": "direct_map", "PYTHONPATH": path},
    )  # fmt: skip
    assert (found["verdict"]["kind"], code) == ("engine", 1)
    assert "takes the values of d2t for target ids" in found["verdict"]["sentence"]
    assert found["first_difference"]["tensor"] == "draft token"
