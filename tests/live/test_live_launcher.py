"""The probe's own launcher on a release that would load the plugin by itself as well."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, newest, only, probed_pair, tokens
from rig.server import rig_environment

from sglang_eagle3_probe.trace.records import LayerIds, Seams


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    place = tmp_path_factory.mktemp("launcher")
    with probed_pair(models, place, entry="probe_launcher") as run:
        yield run


@pytest.fixture(scope="module")
def answers(served: Probed, prompts: list[list[int]]) -> Any:
    return served.server.generate(prompts, max_new_tokens=NEW_TOKENS)


def test_tokens_equal_plain_decoding(answers: Any, plain: list[tuple[int, ...]]) -> None:
    assert tokens(answers) == plain


def test_the_probe_is_there_once(served: Probed, answers: Any) -> None:
    trace = served.rounds_match(answers)
    rounds = [row for record in only(trace, Seams) for row in record.seams]
    patched = [state.target for state in rounds if state.state == "patched"]
    assert len(patched) == len(set(patched)) > 10
    assert newest(trace, LayerIds).patches_applied == ["embedding_capture"]
    assert len(only(trace, LayerIds)) == 1
    verified = sum(int(a.meta_info["spec_verify_ct"]) for a in answers)
    assert sum(len(r.rids) for r in trace.processes[0].verify_rounds()) == verified


def test_help_shows_the_flags_of_both() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sglang_eagle3_probe.launch_server", "--help"],
        env=rig_environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("--enable-probe") >= 1
    assert "--speculative-algorithm" in done.stdout
