"""The offline draft computes what SGLang's own draft classes do, to float32 rounding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sglang")

from rig.server import rig_environment  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from contract.served.target_shapes import small_target  # noqa: E402
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft  # noqa: E402

from .cases import STEPS, served, write  # noqa: E402

WORKER = Path(__file__).with_name("sglang_module.py")
CASES = list(served())
ROUNDING = 2e-5
"""Of the largest value; float32 has 6e-8 a step, and sums of hundreds run in another order."""


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, object]]]:
    work = tmp_path_factory.mktemp("sglang-drafts")
    start = work / "start"
    start.mkdir()
    (start / "config.json").write_text(json.dumps(small_target("LlamaForCausalLM", 8)))
    folders = [write(case, work / f"case-{n}", n) for n, case in enumerate(CASES)]
    questions, answer, log = work / "questions.json", work / "answers.json", work / "log"
    questions.write_text(
        json.dumps({"start": str(start), "work": str(work), "cases": [str(f) for f in folders]})
    )
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, str(WORKER), str(questions), str(answer)],
            env=rig_environment(), stdout=out, stderr=out, timeout=1500, check=False,
        )  # fmt: skip
    assert done.returncode == 0, log.read_text(encoding="utf-8")[-3000:]
    answers = json.loads(answer.read_text())
    return {
        case.name: (folder, found)
        for case, folder, found in zip(CASES, folders, answers, strict=True)
    }


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_steps(name: str, computed: dict[str, tuple[Path, dict[str, object]]]) -> None:
    folder, answer = computed[name]
    assert "raised" not in answer, answer
    theirs = load_file(folder / "sglang.safetensors")
    given = load_file(folder / "inputs.safetensors")
    draft = ReferenceDraft.load(folder, target=folder / "target")
    features = draft.features(given["aux"])
    outputs = draft.steps(given["next_ids"], features, given["positions"], STEPS)
    for step, output in enumerate(outputs):
        for what, mine in (("logits", draft.logits(output.normed)), ("hidden", output.hidden)):
            other = theirs[f"{what}.{step}"]
            assert mine.shape == other.shape
            assert (mine - other).abs().max() <= ROUNDING * other.abs().max(), (what, step)
    if "target_ids" in theirs:
        assert torch.equal(
            draft.target_ids(torch.arange(len(theirs["target_ids"]))), theirs["target_ids"]
        )
