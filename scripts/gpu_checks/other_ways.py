"""The other ways to the same behaviour, under CUDA graphs: patched files, the probe's launcher.

Both serve layer id -1 on models whose released SGLang cannot, and must give the tokens that the
plugin gives.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import LayerIds

from .engines import Engine, EngineError, launch_all
from .equality import REQUESTS, equal_requests, model_paths, prompts
from .runs import CHAIN_AND_TREE, Run

NEW_TOKENS = 128
PORT = 31999


def run(place: Path, options: argparse.Namespace, out: Any) -> None:
    """The plugin, patched files without it, and the launcher; on the family that is patched."""
    patched = patched_sglang(place / "patched")
    search = os.pathsep.join([str(patched), os.environ.get("PYTHONPATH", "")])
    chosen = [
        r for r in CHAIN_AND_TREE if (r.worker, r.tp, r.family) == (options.worker, 1, "deepseek")
    ]
    plugin: dict[Run, Engine] = {}
    files: dict[Run, Engine] = {}
    launcher: Launcher | None = None
    for run_ in chosen:
        model, draft = model_paths(place / "other-ways", run_.family, stock=False)
        arguments = run_.arguments(model, draft)
        plugin[run_] = Engine(f"plugin-{run_.name}", arguments, place, probe={"level": "wiring"})
        files[run_] = Engine(
            f"patched-{run_.name}", arguments, place, environment={"PYTHONPATH": search}
        )
        launcher = launcher or Launcher(run_, arguments, place)
    engines = [*plugin.values(), *files.values()]
    try:
        if launcher is not None:
            launcher.launch()
        failed = launch_all(engines, options.start_timeout)
        for name, error in failed.items():
            out.say(check="other_ways", engine=name, passed=False, error=error[-1500:])
        for run_ in chosen:
            pair = (plugin[run_], files[run_])
            if all(engine.ready for engine in pair):
                try:
                    compare(run_, *pair, launcher, out)
                except (EngineError, OSError) as error:
                    out.say(
                        check="other_ways", run=run_.name, passed=False, error=str(error)[-1500:]
                    )
    finally:
        for engine in engines:
            engine.stop()
        if launcher is not None:
            launcher.stop()


def patched_sglang(folder: Path) -> Path:
    """A copy of the installed SGLang with the source patches in it."""
    found = importlib.util.find_spec("sglang")
    if found is None or found.origin is None:
        raise SystemExit("SGLang is not importable here. Fix: put it on PYTHONPATH.")
    source = Path(found.origin).parent
    shutil.copytree(source, folder / "sglang")
    for info in source.parent.glob("sglang-*.dist-info"):
        shutil.copytree(info, folder / info.name)
    done = subprocess.run(
        [sys.executable, "-m", "sglang_eagle3_probe.cli.main", "patch-source", "--sglang-dir",
         str(folder)],
        capture_output=True, text=True,
    )  # fmt: skip
    print(f"  {done.stdout.strip()}{done.stderr.strip()}", flush=True)
    return folder


def compare(run_: Run, plugin: Engine, files: Engine, launcher: Launcher | None, out: Any) -> None:
    """The same calls everywhere."""
    answers = {}
    for engine in (plugin, files):
        engine.generate(prompts(2, 1), 16)
        engine.flush()
        answers[engine.name] = engine.generate(prompts(REQUESTS, 2), NEW_TOKENS)["tokens"]
    same = equal_requests([answers[plugin.name]], [answers[files.name]])
    out.say(
        check="patched_source",
        run=run_.name,
        passed=same == REQUESTS and not files.probe_lines(),
        equal_requests=same,
        of=REQUESTS,
        boundaries=boundaries(plugin.traces),
        probe_lines_without_plugin=len(files.probe_lines()),
    )
    if launcher is not None and launcher.run == run_:
        found = launcher.generate(prompts(REQUESTS, 2), NEW_TOKENS)
        same = equal_requests([found], [answers[plugin.name]])
        out.say(
            check="launcher",
            run=run_.name,
            # Requests reach a server one by one, so that near-ties may part: told, not judged.
            passed=boundaries(launcher.traces) == boundaries(plugin.traces),
            equal_requests=same,
            of=REQUESTS,
            boundaries=boundaries(launcher.traces),
        )


def boundaries(traces: Path) -> list[int] | None:
    """Those in force, by the first process of a trace."""
    ids = read(traces).processes[0].newest(LayerIds)
    return [s.boundary for s in ids.slots] if isinstance(ids, LayerIds) else None


class Launcher:
    """``python -m sglang_eagle3_probe.launch_server`` with the arguments of an engine."""

    def __init__(self, run_: Run, arguments: dict[str, Any], place: Path) -> None:
        self.run, self.folder = run_, place / "launcher"
        self.traces = self.folder / "traces"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        flags: list[str] = []
        for name, value in {**self._arguments, "port": PORT}.items():
            if value is False:
                continue
            flags.append("--" + name.replace("_", "-"))
            if value is not True:
                flags.append(str(value))
        flags += ["--enable-probe", "--probe-dir", str(self.traces)]
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sglang_eagle3_probe.launch_server", *flags],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def generate(self, asked: list[list[int]], new_tokens: int) -> list[list[int]]:
        """Greedy tokens; waits up to two minutes for the server.

        Raises:
            EngineError: it does not answer.
        """
        body = {
            "input_ids": asked,
            "sampling_params": {
                "temperature": 0.0, "max_new_tokens": new_tokens, "ignore_eos": True,
            },
        }  # fmt: skip
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/generate",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        until = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return [one["output_ids"] for one in json.load(answer)]
            except OSError as error:
                ended = self._process is not None and self._process.poll() is not None
                if ended or time.monotonic() > until:
                    text = (self.folder / "log").read_text(errors="replace")
                    raise EngineError(
                        f"the launcher does not answer ({error}): {text[-1200:]}"
                    ) from None
                time.sleep(1)

    def stop(self) -> None:
        """Kill the process group."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
