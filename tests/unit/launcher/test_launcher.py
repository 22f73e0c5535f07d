"""Every process that a server spawns gets the probe from its own launcher, and gets it once.

The server is a stand-in that spawns as SGLang does (start method spawn, a data-parallel controller
that spawns schedulers of its own), so that this needs a second and no SGLang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

FILES = {
    "sglang/__init__.py": "",
    "sglang/launch_server.py": """
        import multiprocessing, os, sys
        if __name__ == "__main__":
            multiprocessing.set_start_method("spawn", force=True)
            if os.environ.get("STAND_IN_PLUGINS"):
                from sglang.srt.plugins import load_plugins
                load_plugins()
            from sglang.srt.server_args import prepare_server_args
            args = prepare_server_args(sys.argv[1:])
            from sglang.srt.processes import start
            start(args)
    """,
    "sglang/srt/__init__.py": "",
    "sglang/srt/plugins.py": """
        def load_plugins():
            from sglang_eagle3_probe import plugin
            plugin.register()
    """,
    "sglang/srt/server_args.py": """
        import argparse
        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--model-path", required=True)
        def prepare_server_args(argv):
            parser = argparse.ArgumentParser()
            ServerArgs.add_cli_args(parser)
            return parser.parse_args(argv)
    """,
    "sglang/srt/processes.py": """
        import json, multiprocessing, os
        def report(role):
            if os.environ.get("STAND_IN_PLUGINS"):
                from sglang.srt.plugins import load_plugins
                load_plugins()
            from sglang.srt.managers import scheduler
            init = scheduler.Scheduler.__dict__["__init__"]
            wrapped, depth = init, 0
            while hasattr(wrapped, "__wrapped__"):
                wrapped, depth = wrapped.__wrapped__, depth + 1
            with open(os.environ["STAND_IN_OUT"], "a") as out:
                out.write(json.dumps([role, depth]) + "\\n")
        def run_scheduler_process(args):
            report("scheduler")
        def run_controller_process(args):
            report("controller")
            child = multiprocessing.Process(target=run_scheduler_process, args=(args,))
            child.start(); child.join()
        def start(args):
            report("main")
            for target in (run_scheduler_process, run_controller_process):
                child = multiprocessing.Process(target=target, args=(args,))
                child.start(); child.join()
    """,
    "sglang/srt/managers/__init__.py": "",
    "sglang/srt/managers/scheduler.py": """
        class Scheduler:
            def __init__(self, server_args):
                pass
    """,
}
METADATA = "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.9\n"


def run(tmp_path: Path, *arguments: str, **more: str) -> tuple[Any, list[list[Any]]]:
    """The stand-in served by our launcher: how it ended, and (role, wrappers on a target)."""
    site, out = tmp_path / "site", tmp_path / "out.jsonl"
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(textwrap.dedent(text), encoding="utf-8")
    (site / "sglang-0.5.9.dist-info").mkdir(exist_ok=True)
    (site / "sglang-0.5.9.dist-info" / "METADATA").write_text(METADATA, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_EAGLE3")}
    environment |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "STAND_IN_OUT": str(out), **more}
    done = subprocess.run(
        [sys.executable, "-m", "sglang_eagle3_probe.launch_server", *arguments],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    return done, [json.loads(line) for line in lines]


@pytest.mark.parametrize("plugins", ["", "1"], ids=["no plugins", "plugins too"])
def test_every_spawned_process_gets_the_probe_once(tmp_path: Path, plugins: str) -> None:
    done, seen = run(tmp_path, "--model-path", "m", "--enable-probe", STAND_IN_PLUGINS=plugins)
    assert done.returncode == 0, done.stderr
    assert seen == [["main", 0], ["scheduler", 1], ["controller", 1], ["scheduler", 1]]


def test_without_the_flag_it_just_serves(tmp_path: Path) -> None:
    done, seen = run(tmp_path, "--model-path", "m")
    assert done.returncode == 0, done.stderr
    assert seen == [["main", 0], ["scheduler", 0], ["controller", 0], ["scheduler", 0]]
    assert not (tmp_path / "probe-logs").exists()


def test_help_shows_the_flag(tmp_path: Path) -> None:
    done, seen = run(tmp_path, "--help")
    assert done.returncode == 0
    assert "--enable-probe" in done.stdout
    assert "--model-path" in done.stdout
    assert seen == []


def test_a_wrong_variable_stops_it_before_anything_is_spawned(tmp_path: Path) -> None:
    done, seen = run(
        tmp_path, "--model-path", "m", "--enable-probe", SGLANG_EAGLE3_PROBE_LEVEL="much"
    )
    assert done.returncode == 2
    assert "SGLANG_EAGLE3_PROBE_LEVEL" in done.stderr
    assert seen == []


def test_without_sglang_it_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", HIDDEN_SGLANG], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "SGLang is not installed" in done.stderr
    assert "Fix: " in done.stderr


HIDDEN_SGLANG = """
import importlib.util
plain = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "sglang" else plain(name, *rest)
from sglang_eagle3_probe.launch_server import main
main()
"""
