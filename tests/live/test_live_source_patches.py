"""SGLang's own files with the source diffs, without and with the plugin, against the plugin alone.

One draft with its fc blocks in an order of its own and the list that says so: stock SGLang dies of
that list, and a server that captured or ordered wrongly would accept half as much.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from conftest import NEW_TOKENS, Models
from contract.served.patched_tree import installed_folder, overlay
from probed import accept_length, cli, newest, probed, tokens
from rig.server import Generation, RigServer, rig_environment

from sglang_eagle3_probe.source_patches.series import releases
from sglang_eagle3_probe.trace.records import AuxStates, LayerIds

LISTED = [5, -1, 2]
BLOCKS = (2, 0, 1)
"""Of the fixture's fc, which was trained on [-1, 2, 5]."""


@dataclass
class Served:
    """What one server gave.

    Args:
        states: aux hidden states of a prompt and a few tokens, one row each.
    """

    answers: list[Generation]
    states: list[list[float]]


@pytest.fixture(scope="module")
def draft(models: Models) -> Path:
    return models.variant(
        "deepseek-draft-embed", "source-order", aux_layer_ids=LISTED, fc_block_order=BLOCKS
    )


@pytest.fixture(scope="module")
def patched_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A search path on which the installed SGLang comes with the diffs, put in by the command."""
    release = metadata.version("sglang")
    if release not in releases():
        pytest.skip(f"there are no source diffs for SGLang {release}")
    place = overlay(release, installed_folder(), tmp_path_factory.mktemp("patched"))
    assert cli("patch-source", "--sglang-dir", str(place), "--check").returncode == 1
    done = cli("patch-source", "--sglang-dir", str(place))
    assert done.returncode == 0, done.stderr
    assert cli("patch-source", "--sglang-dir", str(place), "--check").returncode == 0
    return os.pathsep.join([rig_environment()["PYTHONPATH"], str(place)])


@pytest.fixture(scope="module")
def by_plugin(
    models: Models,
    draft: Path,
    prompts: list[list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Served:
    """The released files with the plugin on."""
    place = tmp_path_factory.mktemp("plugin")
    flag = ["--enable-return-hidden-states"]
    with probed(models["deepseek"], draft, place, extra_args=flag) as run:
        return ask(run.server, prompts)


@pytest.fixture(scope="module")
def by_source(
    models: Models,
    draft: Path,
    prompts: list[list[int]],
    patched_path: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Served:
    """The patched files with the plugin off."""
    log = tmp_path_factory.mktemp("source") / "server.log"
    with RigServer(
        models["deepseek"],
        draft,
        extra_args=["--enable-return-hidden-states"],
        extra_env={"PYTHONPATH": patched_path},
        log_file=log,
    ) as server:
        served = ask(server, prompts)
    assert "eagle3-probe:" not in log.read_text(errors="replace")
    return served


@pytest.fixture(scope="module")
def by_both(
    models: Models,
    draft: Path,
    prompts: list[list[int]],
    patched_path: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Served, LayerIds, AuxStates]]:
    """The patched files with the plugin on."""
    with probed(
        models["deepseek"],
        draft,
        tmp_path_factory.mktemp("both"),
        extra_args=["--enable-return-hidden-states"],
        extra_env={"PYTHONPATH": patched_path},
    ) as run:
        served = ask(run.server, prompts)
        trace = run.rounds_match(served.answers)
        yield served, newest(trace, LayerIds), newest(trace, AuxStates)


def ask(server: RigServer, prompts: list[list[int]]) -> Served:
    answers = server.generate(prompts, max_new_tokens=NEW_TOKENS)
    server.flush_cache()
    [alone] = server.generate([prompts[0]], max_new_tokens=16, return_hidden_states=True)
    prefill, *emitted = alone.meta_info["hidden_states"]
    return Served(answers, [*prefill, *emitted])


def test_the_same_states_tokens_and_acceptance_as_the_plugin(
    by_plugin: Served, by_source: Served, plain: list[tuple[int, ...]]
) -> None:
    assert len(by_source.states) > 16
    assert by_source.states == by_plugin.states
    assert tokens(by_source.answers) == tokens(by_plugin.answers) == plain
    assert accept_length(by_source.answers) == accept_length(by_plugin.answers) >= 2.8


def test_the_plugin_leaves_patched_files_to_do_it(
    by_both: tuple[Served, LayerIds, AuxStates], by_plugin: Served
) -> None:
    served, record, aux = by_both
    assert served.states == by_plugin.states
    assert tokens(served.answers) == tokens(by_plugin.answers)
    assert accept_length(served.answers) == accept_length(by_plugin.answers)
    assert [slot.output_id for slot in record.slots] == LISTED
    assert record.stock_boundaries == [0, 3, 6]
    assert record.source_patched
    assert record.patches_applied == []
    assert aux.boundaries == [6, 0, 3]
    assert not aux.reordered
