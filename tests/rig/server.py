"""Starts and drives a real SGLang server on the CPU rig.

with RigServer(target, draft, steps=3, topk=1, extra_args=["--enable-probe"]) as server:
    [answer] = server.generate([[5, 6, 7]], max_new_tokens=16)
    print(answer.output_ids, answer.meta_info["spec_accept_length"])
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil

SITE = Path(__file__).resolve().parent / "site"
OLDER = SITE.parent / "older"

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")

NO_GRAPHS = (
    "--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled",
)  # fmt: skip

_PORTS = (12000, 21000)

# Ends the server's process group when the process that started the server is gone, however it
# went: its end of the pipe closes then.
_WATCHDOG = """
import os, signal, sys
sys.stdin.buffer.read()
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


class RigServerError(RuntimeError):
    """The server did not start, died, or refused a request."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """One answer of ``/generate``."""

    output_ids: tuple[int, ...]
    text: str
    meta_info: dict[str, Any]

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the prefix cache."""
        return int(self.meta_info["cached_tokens"])

    @property
    def accept_length(self) -> float:
        """Tokens per verification round, counting the bonus token."""
        return float(self.meta_info["spec_accept_length"])


def rig_environment(
    extra: Mapping[str, str] | None = None, *, tp: int = 1, release: Path | None = None
) -> dict[str, str]:
    """The environment of a process that runs SGLang on the rig with ``tp`` ranks.

    Starts from this process's environment; ``extra`` is applied last. ``release`` is the folder of
    another SGLang than the installed one, which then runs on the installed one's dependencies.
    """
    environment = dict(os.environ)
    # Bytecode is worth 20 s at start-up: three processes import some 5000 modules each.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    first = [str(SITE)]
    if release is not None:
        first += [str(OLDER), str(release)]
    search_path = [*first, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment.update(
        PYTHONPATH=os.pathsep.join(path for path in search_path if path),
        CUDA_VISIBLE_DEVICES="",
        SGLANG_USE_CPU_ENGINE="1",
        TORCHDYNAMO_DISABLE="1",
        HF_HUB_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        # More threads only wait for each other: the models are tiny, and on a busy machine
        # their barriers make a request ten times slower.
        OMP_NUM_THREADS="1",
    )
    if tp > 1:
        cores = sorted(os.sched_getaffinity(0))
        environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(
            str(cores[rank % len(cores)]) for rank in range(tp)
        )
        # The CUDA build of SGLang would load NCCL for its group; a missing library makes it
        # stay with gloo.
        environment["SGLANG_NCCL_SO_PATH"] = str(SITE / "no-nccl-on-the-rig.so")
    environment.update(extra or {})
    return environment


class RigServer:
    """A real SGLang server in its own process group, stopped for sure on exit.

    ``draft`` turns speculative decoding on. ``extra_args`` reach SGLang unchanged and come last,
    so they win over the rig's own. ``entry`` chooses ``python -m sglang.launch_server``,
    ``sglang serve`` or the probe's own launcher. ``progress`` gets a line every two seconds while
    the server starts. ``release`` serves another SGLang (see ``rig_environment``); ``no_graphs``
    and ``ready_path`` are for those that spell these otherwise. ``stop_grace`` is how long leaving
    the context waits for SGLang's own shutdown.
    """

    def __init__(
        self,
        model: str | Path,
        draft: str | Path | None = None,
        *,
        algorithm: str = "EAGLE3",
        steps: int = 3,
        topk: int = 1,
        num_draft_tokens: int | None = None,
        tp: int = 1,
        max_total_tokens: int = 8192,
        max_running_requests: int = 16,
        extra_args: Sequence[str] = (),
        extra_env: Mapping[str, str] | None = None,
        log_file: str | Path | None = None,
        entry: Literal["launch_server", "serve", "probe_launcher"] = "launch_server",
        startup_timeout: float = 300.0,
        request_timeout: float = 300.0,
        stop_grace: float = 0.0,
        release: Path | None = None,
        no_graphs: Sequence[str] = NO_GRAPHS,
        ready_path: str = "/ready",
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.model = Path(model)
        self.draft = Path(draft) if draft is not None else None
        self.algorithm = algorithm
        self.steps = steps
        self.topk = topk
        self.num_draft_tokens = num_draft_tokens or (steps + 1 if topk == 1 else 8)
        self.tp = tp
        self.max_total_tokens = max_total_tokens
        self.max_running_requests = max_running_requests
        self.extra_args = tuple(extra_args)
        self.environment = rig_environment(extra_env, tp=tp, release=release)
        self.entry = entry
        self.startup_timeout = startup_timeout
        self.request_timeout = request_timeout
        self.stop_grace = stop_grace
        self.startup_seconds = 0.0
        self.port = 0
        self._no_graphs = tuple(no_graphs)
        self._ready_path = ready_path
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        if log_file is None:
            handle, name = tempfile.mkstemp(prefix="sglang-rig-", suffix=".log")
            os.close(handle)
            log_file = name
        self.log_file = Path(log_file)

    def __enter__(self) -> RigServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the HTTP server, which is also the id of the process group."""
        if self._process is None:
            raise RigServerError("the server was not started")
        return self._process.pid

    def command(self) -> list[str]:
        """The command line that ``start`` runs."""
        python = sys.executable
        if self.entry == "serve":
            launcher = [python, str(Path(python).with_name("sglang")), "serve"]
        elif self.entry == "probe_launcher":
            launcher = [python, "-m", "sglang_eagle3_probe.launch_server"]
        else:
            launcher = [python, "-m", "sglang.launch_server"]
        arguments = {
            "--model-path": self.model,
            "--host": "127.0.0.1",
            "--port": self.port,
            "--device": "cpu",
            "--dtype": "float32",
            "--max-total-tokens": self.max_total_tokens,
            "--max-running-requests": self.max_running_requests,
            "--random-seed": 0,
            "--tp-size": self.tp,
        }
        if self.draft is not None:
            arguments |= {
                "--speculative-algorithm": self.algorithm,
                "--speculative-draft-model-path": self.draft,
                "--speculative-num-steps": self.steps,
                "--speculative-eagle-topk": self.topk,
                "--speculative-num-draft-tokens": self.num_draft_tokens,
            }
        flags = [*self._no_graphs, "--skip-server-warmup"]
        if not any((self.model / name).exists() for name in _TOKENIZER_FILES):
            flags.append("--skip-tokenizer-init")
        pairs = [str(part) for pair in arguments.items() for part in pair]
        return [*launcher, *pairs, *flags, *self.extra_args]

    def start(self) -> None:
        """Starts the server and returns when it can answer."""
        if self._process is not None:
            raise RigServerError("the server is already running")
        self.port = _free_port()
        command = self.command()
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self.log_file.open("wb") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._wait_until_ready(began)
        except BaseException:
            self.stop()
            raise
        self.startup_seconds = time.monotonic() - began

    def _wait_until_ready(self, began: float) -> None:
        assert self._process is not None
        next_report = began + 2.0
        while True:
            code = self._process.poll()
            if code is not None:
                raise RigServerError(
                    f"the server exited with code {code} during start-up:\n{self.log_tail()}"
                )
            # Not /health: it runs a request of its own, which a probe would then see.
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}{self._ready_path}", timeout=2),
            ):
                return
            now = time.monotonic()
            if now - began > self.startup_timeout:
                raise RigServerError(
                    f"the server was not ready after {self.startup_timeout:.0f} s:\n"
                    f"{self.log_tail()}"
                )
            if self._progress is not None and now >= next_report:
                last = self.log_tail(1)[:120]
                self._progress(f"waiting for SGLang, {now - began:.0f} s: {last}")
                next_report = now + 2.0
            time.sleep(0.1)

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
        max_new_tokens: int = 32,
        temperature: float = 0.0,
        sampling_seed: int | Sequence[int] | None = None,
        return_hidden_states: bool = False,
        **sampling: Any,
    ) -> list[Generation]:
        """Sends all prompts (texts, or lists of token ids) at once and waits for all answers.

        One ``sampling_seed`` holds for all prompts, a list gives one to each; SGLang heeds seeds
        with ``--enable-deterministic-inference`` only. Other keywords are SGLang's sampling
        parameters, such as ``top_p`` or ``ignore_eos``.
        """
        batch = [prompts] if isinstance(prompts, str) or _is_token_ids(prompts) else list(prompts)
        if not batch:
            return []
        parameters: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            **sampling,
        }
        if sampling_seed is None or isinstance(sampling_seed, int):
            seeds = [sampling_seed] * len(batch)
        else:
            seeds = list(sampling_seed)
        per_prompt = [
            parameters if seed is None else parameters | {"sampling_seed": seed} for seed in seeds
        ]
        body = {
            "text" if isinstance(batch[0], str) else "input_ids": batch,
            "sampling_params": per_prompt,
            "return_hidden_states": return_hidden_states,
        }
        answers = json.loads(self._post("/generate", body))
        return [
            Generation(
                tuple(answer.get("output_ids") or ()),
                answer.get("text") or "",
                answer["meta_info"],
            )
            for answer in answers
        ]

    def flush_cache(self) -> None:
        """Empties the prefix cache; waits up to 10 s for running requests."""
        self._post("/flush_cache?timeout=10", None)

    def abort_all(self) -> None:
        """Ends all running and waiting requests; their ``generate`` calls return."""
        self._post("/abort_request", {"abort_all": True})

    def scheduler_pids(self) -> list[int]:
        """Process ids of the schedulers, one per tensor-parallel rank, in the order of ranks."""
        found = []
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                title = " ".join(process.cmdline())
                if title.startswith("sglang::scheduler"):
                    found.append((title, process.pid))
        return [pid for _, pid in sorted(found)]

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the log that are not empty."""
        with contextlib.suppress(FileNotFoundError):
            text = self.log_file.read_text(errors="replace")
            return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
        return ""

    def stop(self, grace: float | None = None) -> None:
        """Ends the server: SIGTERM, ``grace`` seconds, then SIGKILL for the whole process group.

        Without grace it is SIGKILL at once. SGLang takes 5 to 6 s to notice a SIGTERM, and its
        own shutdown kills the schedulers with SIGKILL too.
        """
        grace = self.stop_grace if grace is None else grace
        if self._process is not None and self._process.poll() is None and grace > 0:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self.kill9()

    def kill9(self) -> None:
        """Kills the whole process group at once, without a chance to clean up."""
        if self._process is None:
            return
        group = self._process.pid
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self._process.wait()
        _wait_for_group(group)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        self._process = None

    def _post(self, path: str, body: Any) -> str:
        data = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.request_timeout) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")
            raise RigServerError(f"{path} answered {error.code}: {reason}") from error
        except OSError as error:
            raise RigServerError(f"{path} failed ({error}):\n{self.log_tail()}") from error


def _is_token_ids(prompts: Sequence[Any]) -> bool:
    return len(prompts) > 0 and isinstance(prompts[0], int)


def _free_port() -> int:
    """A port that is free and is not handed to anybody by chance while the server still imports.

    The kernel gives out its ephemeral ports (32768 and up), to SGLang's own sockets too; SGLang
    looks for others between 22000 and 29999. A port of theirs that is free now may be taken when
    the server binds it half a minute later: it then ends, saying that it was ready.
    """
    for _ in range(64):
        port = random.SystemRandom().randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RigServerError(f"no free port found between {_PORTS[0]} and {_PORTS[1]}")


def _wait_for_group(group: int, timeout: float = 10.0) -> None:
    """Waits until no live process of the group is left (zombies hold nothing any more)."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and _group_is_alive(group):
        time.sleep(0.02)


def _group_is_alive(group: int) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
