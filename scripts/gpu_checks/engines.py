"""Engines with and without the probe, side by side on the same GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class EngineError(RuntimeError):
    """An engine died or did not answer in time."""


@dataclass
class Engine:
    """One ``sglang.Engine`` in a process group of its own.

    name: also its folder under ``place``: log, answers, traces. probe: variables without prefix,
    or ``None`` for an engine without the probe.
    """

    name: str
    arguments: dict[str, Any]
    place: Path
    probe: dict[str, str] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None
    ready: bool = False
    _read: int = 0

    @property
    def folder(self) -> Path:
        """Where everything of this engine lies."""
        return self.place / self.name

    @property
    def label(self) -> str:
        """Its folder and name, for people."""
        return f"{self.place.name}/{self.name}"

    @property
    def traces(self) -> Path:
        """The probe's trace folder."""
        return self.folder / "traces"

    def launch(self) -> None:
        """Start without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self.environment}
        if self.probe is not None:
            environment["SGLANG_EAGLE3_PROBE"] = "1"
            environment["SGLANG_EAGLE3_PROBE_DIR"] = str(self.traces)
            environment |= {f"SGLANG_EAGLE3_PROBE_{k.upper()}": v for k, v in self.probe.items()}
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(HERE / "worker.py"),
                    json.dumps(self.arguments),
                    str(self.folder / "answers.jsonl"),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float) -> dict[str, Any]:
        """The first answer, which says how long the start took."""
        answer = self._answer(timeout_s)
        self.ready = True
        return answer

    def generate(
        self, prompts: list[list[int]], new_tokens: int, timeout_s: float = 120, **more: Any
    ) -> dict[str, Any]:
        """Greedy generation of exactly ``new_tokens`` per prompt."""
        return self._ask({"prompts": prompts, "new_tokens": new_tokens, **more}, timeout_s)

    def flush(self) -> None:
        """Empty the prefix cache."""
        self._ask({"flush": True}, 30)

    def _ask(self, command: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError(f"{self.name} is not running: {self.tail()}") from None
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        end = time.monotonic() + timeout_s
        file = self.folder / "answers.jsonl"
        while time.monotonic() < end:
            lines = file.read_text().splitlines(keepends=True) if file.exists() else []
            if len(lines) > self._read and lines[self._read].endswith("\n"):
                self._read += 1
                answer: dict[str, Any] = json.loads(lines[self._read - 1])
                return answer
            if self._process.poll() is not None:
                code = self._process.returncode
                raise EngineError(f"{self.name} ended with {code}: {self.tail()}")
            time.sleep(0.002)
        raise EngineError(f"{self.name} gave no answer in {timeout_s:.0f} s: {self.tail()}")

    def tail(self, lines: int = 12) -> str:
        """The end of the log."""
        text = (self.folder / "log").read_text(errors="replace").splitlines()
        return "\n".join(line[:300] for line in text if line.strip())[-200 * lines :]

    def probe_lines(self) -> list[str]:
        """What the probe said in the log."""
        text = (self.folder / "log").read_text(errors="replace").splitlines()
        return [x.split("eagle3-probe: ", 1)[1] for x in text if "eagle3-probe: " in x]

    def pause(self) -> None:
        """Stop every process of the engine: idle schedulers poll, and would disturb the others."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """Kill the process group."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def launch_all(engines: list[Engine], timeout_s: float) -> dict[str, str]:
    """Start all at once; name -> error of those that did not come up."""
    for engine in engines:
        engine.launch()
    return wait_all(engines, time.monotonic() + timeout_s)


def wait_all(engines: list[Engine], until_s: float) -> dict[str, str]:
    """Wait until ``time.monotonic()`` is ``until_s``; name -> error of those that are not up."""
    failed = {}
    for engine in engines:
        try:
            ready = engine.wait_ready(max(1.0, until_s - time.monotonic()))
            print(f"  {engine.label} ready after {ready['ready_s']:.0f} s", flush=True)
        except EngineError as error:
            failed[engine.name] = str(error)[-1500:]
            print(f"  {engine.label} FAILED: {error}", flush=True)
    return failed
