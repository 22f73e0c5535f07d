"""embedding_capture and capture_order on every target family, with SGLang's real classes.

Small random weights; each captured slot is compared with Transformers' hidden states of the same
weights, in float32. Attention, the norm's in-place writes and one gate are stand-ins
(``stand_ins.py``); the experts are real ones, on SGLang's own torch path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from rig.server import rig_environment

from contract.releases import RELEASES
from contract.served.asking import only_usual, search_path
from sglang_eagle3_probe.host.embedding_capture import EmbeddingCapture, of_forward

from . import shapes
from .cases import EVERY, PROBED, STOCK, Case

WORKER = Path(__file__).with_name("real_family.py")
USUAL = ("0.5.16", "0.5.20", "0.5.21", "0.5.23")
"""Each way of getting boundary 0, on every family that needs it, and gpt-oss on both sides of
reaching N. All releases run with the variable of ``contract.served.asking``, or by its script."""
FORWARDS = {
    "LlamaForCausalLM": "llama:LlamaModel",
    "MistralForCausalLM": "llama:LlamaModel",
    "Qwen2ForCausalLM": "qwen2:Qwen2Model",
    "Qwen3ForCausalLM": "qwen3:Qwen3Model",
    "Qwen2MoeForCausalLM": "qwen2_moe:Qwen2MoeModel",
    "Qwen3MoeForCausalLM": "qwen2_moe:Qwen2MoeModel",
    "Glm4MoeForCausalLM": "glm4_moe:Glm4MoeModel",
    "GptOssForCausalLM": "gpt_oss:GptOssModel",
}
ROUNDING = 1e-5
"""Difference of the model's output from Transformers', as a part of its largest value."""

Answers = dict[str, Any]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Architecture -> folder."""
    folder = tmp_path_factory.mktemp("families")
    return {name: str(shapes.write(name, folder)) for name in shapes.FAMILIES}


@pytest.fixture(scope="module")
def answers_of(
    models: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Answers]:
    """What a release answers; every release is asked once, in a process of its own."""
    known: dict[str, Answers | AssertionError] = {}

    def ask(release: str) -> Answers:
        only_usual(release, USUAL)
        folder = search_path(release, "scripts/check_releases")
        if release not in known:
            try:
                known[release] = put_to(release, folder, models, tmp_path_factory.mktemp("asked"))
            except AssertionError as error:
                known[release] = error
        answers = known[release]
        if isinstance(answers, AssertionError):
            raise answers
        return answers

    return ask


def put_to(release: str, folder: Path | None, models: dict[str, str], work: Path) -> Answers:
    """Start the worker with one release on the search path."""
    given, answer, log = work / "questions.json", work / "answers.json", work / "log"
    questions = {
        "models": models,
        "stock": {name: [{"ids": ids} for ids in STOCK] for name in models},
        "probed": {name: [case.question() for case in PROBED] for name in models},
    }
    given.write_text(json.dumps(questions), encoding="utf-8")
    environment = rig_environment()
    root = str(Path(__file__).resolve().parents[3])
    paths = [environment["PYTHONPATH"], root, *([str(folder)] if folder else [])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, str(WORKER), str(given), str(answer)],
            env=environment, stdout=out, stderr=out, timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, log.read_text(encoding="utf-8")[-3000:]
    answers: Answers = json.loads(answer.read_text(encoding="utf-8"))
    assert answers["release"] == release
    return answers


def forward_in(family: str, release: str) -> EmbeddingCapture:
    """The row of the forward that this family runs in a release."""
    name = FORWARDS[family]
    if family == "Qwen3ForCausalLM" and not _since(release, 21):
        name = FORWARDS["Qwen2ForCausalLM"]
    row = of_forward(f"sglang.srt.models.{name}")
    assert row is not None
    return row


def _since(release: str, patch: int) -> bool:
    return int(release.split(".")[2]) >= patch


ASKED = [(r, f) for r in RELEASES for f in FORWARDS]


@pytest.mark.parametrize(("release", "family"), ASKED)
def test_every_list_is_captured_right_or_refused(
    release: str, family: str, answers_of: Callable[[str], Answers]
) -> None:
    found = answers_of(release)["probed"][family]
    assert isinstance(found, list), found
    reaches = family == "GptOssForCausalLM" and _since(release, 17)
    wrong = []
    for case, answer in zip(PROBED, found, strict=True):
        wanted = case.reaching if reaches and case.reaching else case.boundaries
        right = is_captured(answer, wanted) if wanted else is_refused(answer, case)
        if not right:
            wrong.append((case, answer))
    assert not wrong


def is_captured(answer: Answers, wanted: list[int]) -> bool:
    """Each slot equals Transformers' state of its boundary, and so does the model's output."""
    return answer.get("boundaries") == wanted and answer["final_error"] < ROUNDING


def is_refused(answer: Answers, case: Case) -> bool:
    """Start-up ends with a sentence that says what is wrong with which list, and what helps."""
    text = answer.get("text", "")
    ids = list(case.settings.get("layer_ids", case.ids))
    return (
        answer.get("raised") == "ProbeConfigurationError"
        and f"aux layer ids {ids} " in text
        and case.refusal in text
        and all(part in text for part in (family_part(text), "Nothing was served", "Fix: "))
    )


def family_part(text: str) -> str:
    """The class's name and depth, as every refusal names them."""
    named = next((name for name in FORWARDS if name in text), "no class named")
    return f"{named} with {shapes.LAYERS} layers"


@pytest.mark.parametrize(("release", "family"), ASKED)
def test_stock_needs_the_copy_exactly_where_the_table_says(
    release: str, family: str, answers_of: Callable[[str], Answers]
) -> None:
    """Otherwise the comparison above could not tell a copy from an overwritten tensor."""
    found = answers_of(release)["stock"][family]
    assert isinstance(found, list), found
    with_embedding, without = found
    assert is_captured(without, [i + 1 for i in EVERY[1:]])
    by_itself = is_captured(with_embedding, [i + 1 for i in EVERY])
    assert by_itself == (forward_in(family, release).way(release) == "itself"), with_embedding
    if not by_itself and with_embedding.get("raised") != "TypeError":
        assert with_embedding["boundaries"][1:] == [i + 1 for i in EVERY[1:]]
        assert with_embedding["boundaries"][0] != 0
