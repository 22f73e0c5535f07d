"""Puts one release's DeepSeek-V2, with the probe around it, to one forward per list of ids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rig.server import rig_environment

from sglang_eagle3_probe.settings import PREFIX

from . import drafts
from .target_shapes import small_target

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("probed_target.py")
LAYERS = 12


class CannotRun(RuntimeError):
    """The release's modules do not import, or its classes are not built, with what is installed."""


def ask(
    release: str,
    folder: Path | None,
    work: Path,
    lists: Sequence[Sequence[int] | None],
    *,
    variables: Mapping[str, str] | None = None,
    seconds: int = 300,
) -> dict[str, Any]:
    """Under ``answers`` one per list; ``flags``: the command line; ``round``: a verify round.

    Args:
        folder: where the release is unpacked; None: the installed one.
        variables: of the probe, without its prefix.

    Raises:
        CannotRun: nothing could be asked; the message holds the end of what the process wrote.
    """
    target = work / "target"
    target.mkdir(parents=True, exist_ok=True)
    config = small_target("DeepseekV3ForCausalLM", LAYERS)
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    cases = []
    for ids in lists:
        draft_config = {**drafts.PLAIN}
        if ids is not None:
            draft_config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(ids)}
        draft = work / f"draft-{ids}"
        drafts.Draft("ids", draft_config, drafts.shapes_of(draft_config)).write(draft)
        cases.append({"target": str(target), "draft": str(draft)})
    given, answer, log = (work / f"{release}{end}" for end in (".json", "-answers.json", ".log"))
    given.write_text(json.dumps({"start": {"model_path": str(target)}, "cases": cases}), "utf-8")
    environment = rig_environment(
        {PREFIX: "1", f"{PREFIX}_DIR": str(work / "probe-logs")}
        | {f"{PREFIX}_{name}": text for name, text in (variables or {}).items()}
    )
    paths = [environment["PYTHONPATH"], *([str(folder)] if folder else []), str(ROOT)]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, str(WORKER), str(given), str(answer)],
            env=environment, stdout=out, stderr=out, timeout=seconds, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise CannotRun(log.read_text(encoding="utf-8")[-3000:])
    told: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    assert told["release"] == told["probe"] == release, told
    return told
