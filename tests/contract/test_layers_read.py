"""The hooks of level ``capture`` read every boundary of every target class, in the installed
release and in every other one that is unpacked on this machine (``scripts/check_doctor`` brings
them)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from rig.server import rig_environment

from contract.served.ask import LAYERS, Questions
from contract.served.asking import search_path
from contract.served.releases import ASKED

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("served") / "layers_read.py"
LISTED = " [2, 6, 9]"
NOT_BUILT = {("0.5.12.post1", "Gemma3ForCausalLM")}
"""As in ``contract.served.ask``: read as an older Transformers writes its rope settings."""


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return Questions(tmp_path_factory.mktemp("layers"))


@pytest.mark.parametrize("release", ASKED)
def test_every_boundary_is_read(release: str, questions: Questions) -> None:
    folder = search_path(release, "scripts/check_doctor")
    cases = [case for case in questions.captures if case[0].endswith(LISTED)]
    given, answer = (questions.work / f"layers-{release}-{x}.json" for x in ("given", "answer"))
    (questions.work / "rendezvous").unlink(missing_ok=True)
    content = {
        "start": {"model_path": str(questions.start)},
        "targets": [{"target": str(t), "draft": str(d)} for _, t, d in cases],
    }
    given.write_text(json.dumps(content), encoding="utf-8")
    environment = rig_environment()
    paths = [environment["PYTHONPATH"], *([str(folder)] if folder else []), str(ROOT)]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, str(WORKER), str(given), str(answer)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(answer.read_text(encoding="utf-8"))
    assert found["release"] == release
    read = 0
    for (name, _, _), seen in zip(cases, found["targets"], strict=True):
        if (release, name.removesuffix(LISTED)) in NOT_BUILT:
            continue
        assert seen["faults"] == [], name
        assert seen.get("whole") is True, (name, seen)
        # The last one of Gemma's stream has no second witness.
        assert {int(boundary) for boundary in seen["apart"]} >= set(range(LAYERS)), name
        assert max(seen["apart"].values()) < 1e-5, (name, seen["apart"])
        assert seen["norm"] > 0, (name, seen)
        read += 1
    assert read >= 12
