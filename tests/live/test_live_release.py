"""An older release, served on the rig: its own code on the installed one's dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from contract.served.releases import folder_of
from probed import Probed, accept_length, newest, probed_pair, tokens

from sglang_eagle3_probe.trace.records import LayerIds, Seams

RELEASE = "0.5.21"


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    folder = folder_of(RELEASE)
    if folder is None:
        pytest.skip(
            f"SGLang {RELEASE} is not here; scripts/release_environment {RELEASE} brings it"
        )
    with probed_pair(models, tmp_path_factory.mktemp("older"), release=folder) as run:
        yield run


@pytest.fixture(scope="module")
def answers(served: Probed, prompts: list[list[int]]) -> Any:
    return served.server.generate(prompts, max_new_tokens=NEW_TOKENS)


def test_it_is_that_release(served: Probed, answers: Any) -> None:
    trace = served.rounds_match(answers)
    assert trace.processes[0].header.sglang_version == RELEASE
    record = newest(trace, Seams)
    assert record.release_proved
    assert "failed" not in {state.state for state in record.seams}


def test_tokens_equal_plain_decoding(answers: Any, plain: list[tuple[int, ...]]) -> None:
    assert tokens(answers) == plain


def test_layer_ids_and_acceptance(served: Probed, answers: Any) -> None:
    trace = served.rounds_match(answers)
    record = newest(trace, LayerIds)
    assert [slot.boundary for slot in record.slots] == [0, 3, 6]
    assert record.patches_applied == ["embedding_capture"]
    assert accept_length(answers) >= 2.8
    rounds = [r for record in trace.processes[0].verify_rounds() for r in record.correct_drafts]
    assert sum(rounds) == sum(int(a.meta_info["spec_num_correct_drafts"]) for a in answers)
