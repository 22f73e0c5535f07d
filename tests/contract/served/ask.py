"""Puts every case to one release, in a process of its own, and compares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rig.server import rig_environment

from sglang_eagle3_probe.checkpoint.facts import LAYER_CONFIG
from sglang_eagle3_probe.checkpoint.overrides import with_overrides

from . import compare, drafts
from .target_shapes import MODEL_TYPES, small_target

WORKER = Path(__file__).with_name("real_sglang.py")
LAYERS = 12
LISTS: tuple[list[int] | None, ...] = (
    None, [1, 5, 8], [2, 6, 9], [-1, 2, 5], [0, 3, 6], [3, 5, 11], [3, 5, 12], [8, 1, 5], [3, 3, 6],
)  # fmt: skip
NUMBERS = (
    {},
    {"speculative_num_steps": 3},
    {"speculative_eagle_topk": 1},
    {"speculative_num_draft_tokens": 4},
    {"speculative_num_steps": 3, "speculative_eagle_topk": 1},
    {"speculative_num_steps": 3, "speculative_eagle_topk": 4},
    {"speculative_num_steps": 3, "speculative_num_draft_tokens": 4},
    {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
    {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
    {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 8},
    {"speculative_num_steps": 3, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
    {"speculative_num_steps": 5, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 4},
)  # fmt: skip
OVERRIDES = (
    "{}",
    '{"num_hidden_layers": 2}',
    '{"rope_theta": 20000.0}',
    '{"rope_parameters": {"rope_type": "default", "rope_theta": 30000.0}}',
    '{"rope_scaling": {"rope_type": "linear", "factor": 2.0}}',
    '{"rope_parameters": {"rope_type": "linear", "factor": 2.0}}',
    '{"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 40000.0}}',
    "[1]",
    "rope",
)
ALGORITHMS = ("EAGLE3", "EAGLE", "NEXTN", "eagle3")
NOT_BUILT = {("0.5.12.post1", "Gemma3ForCausalLM"): "'factor'"}
"""Classes that a release cannot build with this Transformers, by what it raises."""
WHY_NOT_BUILT = "its rope settings are read as an older Transformers writes them"
TARGETS = ("LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM")


class Questions:
    """Folders to read and the lists of cases, written once and put to each release."""

    def __init__(
        self, work: Path, public: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = ()
    ) -> None:
        """``public``: name, draft config, and the target's config in outline."""
        self.work = work
        self.weights: list[tuple[str, Path]] = []
        self.captures: list[tuple[str, Path, Path]] = []
        self.arguments: list[dict[str, Any]] = []
        self.start = self._target("LlamaForCausalLM", LAYERS)
        plain = drafts.Draft("plain", drafts.PLAIN, drafts.shapes_of(drafts.PLAIN))
        self.draft = plain.write(work / "plain")
        for case in drafts.made_up():
            self._weights(case)
        for name, config, target in public:
            self._public(name, config, target)
        for architecture in MODEL_TYPES:
            for ids in LISTS:
                self._capture(architecture, ids)
        theta = {**drafts.PLAIN, "rope_theta": 500000.0}
        self.other_theta = drafts.Draft("theta", theta, {}).write(work / "theta")
        for algorithm in ALGORITHMS:
            for architecture in TARGETS if algorithm == "EAGLE3" else TARGETS[:1]:
                for numbers in NUMBERS if algorithm == "EAGLE3" else NUMBERS[8:10]:
                    self.arguments.append(
                        {
                            "model_path": str(self._target(architecture, LAYERS)),
                            "speculative_draft_model_path": str(self.draft),
                            "speculative_algorithm": algorithm,
                            **numbers,
                        }
                    )

    def _target(self, architecture: str, layers: int) -> Path:
        folder = self.work / f"{architecture}-{layers}"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            config = small_target(architecture, layers)
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    def _weights(self, case: drafts.Draft) -> Path:
        folder = case.write(self.work / f"draft-{len(self.weights)}")
        self.weights.append((case.name, folder))
        return folder

    def _public(self, name: str, config: Mapping[str, Any], target: Mapping[str, Any]) -> None:
        folder = self._weights(drafts.of_public_config(name, config))
        inner = target.get("text_config", target)
        if LAYER_CONFIG in config:
            self._weights(drafts.of_public_config(f"{name}, converted", drafts.converted(config)))
        architecture, layers = target["architectures"][0], inner["num_hidden_layers"]
        if small_target(architecture, layers) is not None:
            self.captures.append((name, self._target(architecture, layers), folder))

    def _capture(self, architecture: str, ids: list[int] | None) -> None:
        config = {**drafts.PLAIN}
        if ids is not None:
            config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": ids}
        folder = self.work / f"ids-{ids}"
        if not folder.is_dir():
            shapes = drafts.shapes_of(config)
            drafts.Draft("ids", config, shapes).write(folder)
        self.captures.append((f"{architecture} {ids}", self._target(architecture, LAYERS), folder))

    def put_to(
        self, release: str, folder: Path | None, *, seconds: int = 900
    ) -> tuple[list[compare.Row], list[tuple[str, str]]]:
        """Every row of one release, and what could not be asked of it with the reason.

        Args:
            folder: where the release is unpacked; None: the installed one.
        """
        given, answer = self.work / f"{release}.json", self.work / f"{release}-answers.json"
        (self.work / "rendezvous").unlink(missing_ok=True)
        cases = {
            "start": {"model_path": str(self.start)},
            "arguments": self.arguments,
            "drafts": [{"draft": str(path)} for _, path in self.weights],
            "overrides": [
                {"target": str(self.start), "draft": str(self.other_theta), "overrides": text}
                for text in OVERRIDES
            ],
            "targets": [{"target": str(t), "draft": str(d)} for _, t, d in self.captures],
        }
        given.write_text(json.dumps(cases), encoding="utf-8")
        environment = rig_environment()
        paths = [environment["PYTHONPATH"], *([str(folder)] if folder else [])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        log = self.work / f"{release}.log"
        with log.open("w", encoding="utf-8") as out:
            done = subprocess.run(
                [sys.executable, str(WORKER), str(given), str(answer)],
                env=environment, stdout=out, stderr=out, timeout=seconds, check=False,
            )  # fmt: skip
        assert done.returncode == 0, log.read_text(encoding="utf-8")[-3000:]
        answers = json.loads(answer.read_text(encoding="utf-8"))
        assert answers["release"][0] == release, answers["release"]
        return self._rows(release, answers)

    def _rows(
        self, release: str, answers: Mapping[str, Any]
    ) -> tuple[list[compare.Row], list[tuple[str, str]]]:
        rows: list[compare.Row] = []
        cannot: dict[str, str] = {}
        served = {"speculative_algorithm": "EAGLE3"}
        for (name, path), found in zip(self.weights, answers["drafts"], strict=True):
            case = compare.with_folders(self.start, path, release, served)
            rows += compare.weights(name, case, found)
        for (name, target, draft), found in zip(self.captures, answers["targets"], strict=True):
            reason = NOT_BUILT.get((release, target.name.partition("-")[0]))
            if reason is not None and reason in found.get("text", ""):
                cannot[target.name.partition("-")[0]] = WHY_NOT_BUILT
                continue
            case = compare.with_folders(target, draft, release, served)
            rows += compare.boundaries(name, case, found)
        for text, found in zip(OVERRIDES, answers["overrides"], strict=True):
            named = {**served, "json_model_override_args": text}
            case = compare.with_folders(self.start, self.other_theta, release, named)
            rows += compare.overrides(text, with_overrides(case), found)
        for given, found in zip(self.arguments, answers["arguments"], strict=True):
            named = {key: value for key, value in given.items() if not key.endswith("_path")}
            case = compare.with_folders(Path(given["model_path"]), self.draft, release, named)
            rows += compare.arguments(case, found)
        return rows, sorted(cannot.items())
