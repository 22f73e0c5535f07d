"""Every command that the documentation shows is run, in a folder that holds what it names.

Commands that start a server are read by SGLang's own parser, with the probe's flags in it: the demo
and the live tests start servers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch
from docs.shown import ROOT, Shown, shown
from fixtures.materialise import materialise
from fixtures.prompts import held_out_prompts
from offline_captures import CaptureTarget
from rig.server import rig_environment
from unit.cli.terminal import terminal

from sglang_eagle3_probe.offline.captured import read_requests
from sglang_eagle3_probe.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    tomllib = pytest.importorskip("tomli")

COMMANDS = list(shown())
TRACE = ROOT / "tests" / "fixtures" / "traces" / "format-1"
OURS = [c for c in COMMANDS if c.words[0] == "sglang-eagle3-probe"]


ALIASES = {"TARGET": "deepseek-v3", "DRAFT": "my-draft"}
"""Names for the same folder."""


def follows(command: Shown) -> bool:
    """Whether it runs until it is stopped."""
    return command.words[1] in ("top", "tail") and "--once" not in command.words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces and models under the names that the pages use."""
    place = tmp_path_factory.mktemp("reader")
    for name in ("probe-logs", "before", "after", "last-good"):
        shutil.copytree(TRACE, place / name)
    for name in ("1-miswired", "2-right"):
        shutil.copytree(TRACE, place / "demo-logs" / name / "traces")
    target = materialise("deepseek", place / "made" / "target")
    draft = materialise("deepseek-draft-embed", place / "made" / "draft")
    for name in ("deepseek-v3", "demo-logs/models/target", "DIR_OR_CONFIG", "TARGET"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(target)
    for name in ("my-draft", "demo-logs/models/draft-miswired", "DRAFT"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(draft)
    _capture(place, target)
    _released_sources(place / "DIR")
    return place


def _capture(place: Path, target: Path) -> None:
    """Two captured requests, and the same states as SpecForge saves them."""
    capturing = CaptureTarget(target)
    prompts = [prompt.token_ids for prompt in held_out_prompts(2)]
    capturing.write(place / "probe-logs" / "captures", prompts, boundaries=(0, 3, 6), new_tokens=48)
    for number, request in enumerate(read_requests(place / "probe-logs")):
        known = request.aux_known
        saved = {
            "input_ids": request.token_ids[known],
            "loss_mask": torch.ones(int(known.sum()), dtype=torch.int64),
            "hidden_state": request.final_norm[known][None],
            "aux_hidden_state": request.aux[known][None],
        }
        folder = place / "states" / "rows_0-2000"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(saved, folder / f"data_{number}.ckpt")


def _released_sources(place: Path) -> None:
    """The installed SGLang's Python files: those that are patched, as copies."""
    installed = Path(str(distribution("sglang").locate_file("sglang")))
    release = distribution("sglang").version
    listed = (ROOT / "patches" / "sglang" / release / "pristine.sha256").read_text()
    for name in ["sglang/version.py", "sglang/_version.py", *re.findall(r"(sglang/\S+)", listed)]:
        source = installed.parent / name
        if source.exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place / name)


@cache
def run_once(words: tuple[str, ...], place: Path) -> subprocess.CompletedProcess[str]:
    """The same command on two pages is run once."""
    return subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=300)


def command_line(command: Shown) -> list[str]:
    probe = Path(sys.executable).with_name("sglang-eagle3-probe")
    return [str(probe), *command.words[1:]]


@pytest.mark.parametrize("command", [c for c in OURS if not follows(c)], ids=lambda c: c.name)
def test_ours(command: Shown, place: Path) -> None:
    done = run_once(tuple(ALIASES.get(word, word) for word in command_line(command)), place)
    # Two requests decide little; the page says that this is exit code 2.
    undecided = command.words[1] == "infer-layers" and "undecided" in done.stdout
    answered = done.returncode in (0, 1) or (done.returncode == 2 and undecided)
    assert answered, f"{command.text}\n{done.stdout[-2000:]}\n{done.stderr}"
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [c for c in OURS if follows(c)], ids=lambda c: c.name)
def test_ours_that_follow_a_server(
    command: Shown, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with terminal(command_line(command), os.environ, columns=100, lines=40) as screen:
        deadline = time.monotonic() + 40
        while not any(screen.screen()) and time.monotonic() < deadline:
            screen.read(0.2)
        assert any(screen.screen())
        screen.type("\x03")
        assert screen.end() in (0, 1, 130)
    assert "Traceback" not in screen.all


def servers() -> list[Shown]:
    return [
        c
        for c in COMMANDS
        if c.command[:2] == ["sglang", "serve"] or "launch_server" in c.text.split(" --")[0]
    ]


_UNKNOWN = """
import argparse, json, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(json.dumps([parser.parse_known_args(line)[1] for line in json.loads(sys.argv[1])]))
"""


def test_servers_are_given_flags_that_sglang_knows() -> None:
    lines = [_flags(command) for command in servers()]
    assert lines
    done = subprocess.run(
        [sys.executable, "-c", _UNKNOWN, json.dumps(lines)],
        capture_output=True,
        text=True,
        timeout=180,
        env=rig_environment(),
    )
    assert done.returncode == 0, done.stderr
    unknown = json.loads(done.stdout.splitlines()[-1])
    assert unknown == [[] for _ in lines]


def _flags(command: Shown) -> list[str]:
    """What follows ``sglang serve`` or ``python -m MODULE``; "..." stands for the user's own."""
    first = 3 if command.command[:2] == ["python", "-m"] else 2
    words = [word for word in command.command[first:] if word != "..."]
    return words if "--model-path" in words else ["--model-path", "model", *words]


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.text.startswith("SGLANG_")], ids=lambda c: c.name
)
def test_variables(command: Shown) -> None:
    pairs = [word.split("=", 1) for word in command.words if re.match(r"^SGLANG_\w+=", word)]
    assert pairs
    Settings.from_environment(dict(pairs))


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.words[0] == "pip"], ids=lambda c: c.name
)
def test_installations(command: Shown) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in command.words[2:]:
        if word.startswith("-"):
            continue
        name, extras = re.match(r"^([\w.-]+?)(?:\[([\w,]+)\])?$", word).groups()  # type: ignore[union-attr]
        assert name == project["name"]
        assert set((extras or "report").split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.words[0].startswith("scripts/")], ids=lambda c: c.name
)
def test_scripts(command: Shown) -> None:
    script = ROOT / command.words[0]
    assert os.access(script, os.X_OK)


def test_nothing_is_left_over() -> None:
    """Each command is of a kind that a test above takes."""
    for command in COMMANDS:
        first = command.words[0]
        ours = first in ("sglang-eagle3-probe", "pip")
        other = first.startswith(("scripts/", "SGLANG_")) or command in servers()
        assert ours or other, command
