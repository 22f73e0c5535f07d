"""Real forwards of DeepSeek-V3 with the source diffs, one release of each shape that they take.

Embedding, residual stream, norms and everything that captures are SGLang's own; attention is a
stand-in. The installed release, and others that are unpacked on this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from rig.server import rig_environment

from .served import drafts
from .served.ask import LAYERS, WORKER
from .served.patched_tree import installed_folder, patched
from .served.releases import folder_of, installed
from .served.target_shapes import small_target

SHAPES = {
    "0.5.12.post1": "adds 1 itself, embedding beside the loop, a list of states",
    "0.5.13.post1": "takes ids as boundaries, embedding beside the loop, a list of states",
    "0.5.16": "captures the embedding, a list of states",
    "0.5.23": "captures the embedding, one packed tensor",
}
LISTS: tuple[tuple[list[int] | None, list[int]], ...] = (
    ([-1, 2, 5], [0, 3, 6]),
    ([5, -1, 2], [6, 0, 3]),
    ([-1], [0]),
    ([1, 8, 5], [2, 9, 6]),
    (None, [2, 6, 9]),
)
"""A draft's list, and the boundaries that must reach the logits processor, in this order."""


@pytest.mark.parametrize("release", SHAPES)
def test_what_reaches_the_logits_processor(release: str, tmp_path: Path) -> None:
    if installed() is None:
        pytest.skip("SGLang's own dependencies are not installed")
    source = installed_folder() if release == installed() else folder_of(release)
    if source is None:
        pytest.skip(f"SGLang {release} is not unpacked here; scripts/check_doctor brings it")
    place = patched(release, source, tmp_path / "tree")
    answers = ask(place, tmp_path)
    assert answers["release"] == [release, str(place / "sglang")]
    found = [answer.get("forward", answer).get("boundaries") for answer in answers["targets"]]
    assert found == [expected for _, expected in LISTS], answers["targets"]


def ask(search_path: Path, work: Path) -> dict[str, Any]:
    """The worker's answers from the SGLang on a search path."""
    target, start = (
        written(work / name, small_target(name, LAYERS))
        for name in ("DeepseekV3ForCausalLM", "LlamaForCausalLM")
    )
    targets = []
    for ids, _ in LISTS:
        config = {**drafts.PLAIN}
        if ids is not None:
            config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": ids}
        targets.append({"target": target, "draft": written(work / f"draft-{ids}", config)})
    given, answer = work / "given.json", work / "answers.json"
    questions: dict[str, Any] = {name: [] for name in ("arguments", "drafts", "overrides")}
    questions |= {"start": {"model_path": start}, "targets": targets}
    given.write_text(json.dumps(questions), encoding="utf-8")
    environment = rig_environment()
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(search_path)])
    done = subprocess.run(
        [sys.executable, str(WORKER), str(given), str(answer)],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return answers


def written(folder: Path, config: Any) -> str:
    """A folder with a config and nothing else."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)
