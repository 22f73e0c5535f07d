"""Engines that compute something else than the draft's files say, each named by a replay.

One real server, whose draft has a fault (``spoiler``) for as long as some requests run.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, cli, probed
from rig.server import SITE, Generation

from sglang_eagle3_probe.offline.captured import capture_files, read_piece

SPOILER = Path(__file__).with_name("spoiler")
HEALTHY = ""
REQUESTS = 4


@dataclass(frozen=True)
class Fault:
    """What a replay must say of an engine: the end of its sentence, the variation ("": none drafts
    its tokens), what to do."""

    sentence: str
    variation: str
    fix: str


FAULTS = {
    "ids_in_extends": Fault(
        "hands the draft the token of the row itself beside each row, not the token after it",
        "ids shifted by -1",
        "SGLang rotates the ids of each request by one place",
    ),
    "ids_everywhere": Fault(
        "hands the draft the token of the row itself beside each row, not the token after it, and "
        "so in every draft step",
        "ids shifted by -1 in every step",
        "SGLang rotates the ids of each request by one place",
    ),
    "ids_in_prefill": Fault(
        "hands the draft the token of the row itself beside each row of a prompt, not the token "
        "after it",
        "",
        "SGLang rotates the ids of each request by one place",
    ),
    "slots_permuted": Fault("takes the slots in order 1, 2, 0", "slots in order 1, 2, 0", "fc"),
    "fc_skipped": Fault(
        "does not run fc: the first columns of the states go into the layer as they are",
        "fc skipped",
        "--speculative-algorithm EAGLE3",
    ),
    "theta_times_ten": Fault(
        "rotates with theta 100000, not 10000", "theta 100000 (ten times)", '"rope_theta": 100000'
    ),
    "last_norm_missing": Fault("applies no norm before the head", "no last norm", "last norm"),
}


@dataclass(frozen=True)
class Spoiled:
    """The captures of one server, a folder for each fault."""

    folders: dict[str, Path]
    target: Path
    draft: Path


@pytest.fixture(scope="module")
def spoiled(
    models: Models, prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Spoiled:
    place = tmp_path_factory.mktemp("replay-faults")
    switch = place / "switch"
    switch.write_text(HEALTHY)
    faults = (HEALTHY, *FAULTS)
    path = os.pathsep.join([str(SITE), str(SPOILER), os.environ.get("PYTHONPATH", "")])
    draft = models.variant("deepseek-draft-embed", "as-boundaries", aux_layer_ids=[0, 3, 6])
    folders = {}
    with probed(
        models["deepseek"],
        draft,
        place,
        variables={"level": "capture", "capture_first": str(REQUESTS * len(faults))},
        # Or each fault would read what the draft computed under the one before.
        extra_args=["--disable-radix-cache"],
        extra_env={
            "REPLAY_SPOILER": "switched",
            "REPLAY_SPOILER_SWITCH": str(switch),
            "PYTHONPATH": path,
        },
    ) as run:
        for fault in faults:
            switch.write_text(fault)
            answers = run.server.generate(prompts[:REQUESTS], max_new_tokens=NEW_TOKENS)
            folders[fault] = captures_of(run, answers, place / (fault or "healthy"))
    return Spoiled(folders, models["deepseek"], draft)


def captures_of(run: Probed, answers: list[Generation], folder: Path) -> Path:
    """A folder with the capture files of these answers alone."""
    run.captured(answers)
    folder.mkdir()
    wanted = {answer.meta_info["id"] for answer in answers}
    for file in capture_files(run.traces):
        if read_piece(file).info.request in wanted:
            os.link(file, folder / file.name)
    return folder


def replayed(spoiled: Spoiled, fault: str) -> tuple[dict, int]:
    done = cli(
        "replay", str(spoiled.folders[fault]), "--draft", str(spoiled.draft),
        "--target", str(spoiled.target), "--json", "--rows", "128", "--threads", "1",
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout), done.returncode


def test_the_server_is_healthy_without_a_fault(spoiled: Spoiled) -> None:
    found, code = replayed(spoiled, HEALTHY)
    assert (found["verdict"]["kind"], code) == ("healthy", 0), found["verdict"]
    assert found["requests"] == REQUESTS
    assert all(s["same"] + s["ties"] == s["compared"] for s in found["as_configured"]["engine"])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_engine_is_named(spoiled: Spoiled, fault: str) -> None:
    wanted = FAULTS[fault]
    found, code = replayed(spoiled, fault)
    judged = found["verdict"]
    assert (judged["kind"], code) == ("engine", 1), judged
    assert judged["sentence"] == f"The engine {wanted.sentence}."
    named = f"'{wanted.variation}'" if wanted.variation else "No variation drafts its tokens"
    assert any(named in detail for detail in judged["details"]), judged
    assert wanted.fix in judged["fix"]
    assert found["requests"] == REQUESTS
