"""A real server on the rig with the probe, and what it left behind."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.server import Generation, RigServer

from sglang_eagle3_probe.settings import PREFIX
from sglang_eagle3_probe.trace.capture_records import Capture
from sglang_eagle3_probe.trace.reader import Trace, read
from sglang_eagle3_probe.trace.record_base import Record

if TYPE_CHECKING:
    from conftest import Models


@dataclass
class Probed:
    """A running server with the probe on."""

    server: RigServer
    traces: Path

    @property
    def log(self) -> str:
        """The server's log so far."""
        return self.server.log_file.read_text(errors="replace")

    @property
    def log_lines(self) -> list[str]:
        """What the probe said in the log."""
        mark = "eagle3-probe: "
        return [line.split(mark, 1)[1] for line in self.log.splitlines() if mark in line]

    def trace(self, until: Callable[[Trace], bool] = lambda _trace: True) -> Trace:
        """The trace, read again until it satisfies a condition (the writer is another thread)."""
        deadline = time.monotonic() + 15
        while True:
            trace = read(self.traces)
            if until(trace):
                return trace
            assert time.monotonic() < deadline, f"the trace in {self.traces} never got there"
            time.sleep(0.2)

    def rounds_match(self, answers: list[Generation]) -> Trace:
        """The trace, once it holds every verify round that these answers report."""
        expected = sum(int(a.meta_info["spec_verify_ct"]) for a in answers)

        def complete(trace: Trace) -> bool:
            rows = sum(len(r.rids) for p in trace.processes[:1] for r in p.verify_rounds())
            return rows >= expected

        return self.trace(complete)

    def captured(self, answers: list[Generation]) -> Trace:
        """The trace, once the captures of these answers are on the disk."""
        wanted = {rid_of(answer) for answer in answers}
        return self.trace(
            lambda t: wanted <= {c.rid for p in t.processes[:1] for c in p.of(Capture)}
        )


def rid_of(answer: Generation) -> str:
    """What traces call the request of an answer."""
    return rid_digest(answer.meta_info["id"])


def rid_digest(request: str) -> str:
    """What traces call a request of this id."""
    return hashlib.blake2b(request.encode(), digest_size=6).hexdigest()


@contextlib.contextmanager
def probed(
    model: Path,
    draft: Path | None,
    place: Path,
    *,
    variables: Mapping[str, str] | None = None,
    trace_directory: Path | None = None,
    flags: bool = True,
    **server: Any,
) -> Iterator[Probed]:
    """Serve with the probe; the trace goes to ``place/traces``, the log to ``place/server.log``.

    Args:
        variables: probe variables without their prefix, in lower case.
        flags: turn the probe on by ``--enable-probe``; otherwise only variables count.
    """
    traces = trace_directory or place / "traces"
    extra_args = list(server.pop("extra_args", []))
    if flags:
        extra_args += ["--enable-probe", "--probe-dir", str(traces)]
    environment = {f"{PREFIX}_{k.upper()}": v for k, v in (variables or {}).items()}
    environment.update(server.pop("extra_env", {}))
    place.mkdir(parents=True, exist_ok=True)
    with RigServer(
        model,
        draft,
        extra_args=extra_args,
        extra_env=environment,
        log_file=place / "server.log",
        **server,
    ) as running:
        yield Probed(running, traces)


def probed_pair(
    models: Models, place: Path, **how: Any
) -> contextlib.AbstractContextManager[Probed]:
    """``probed`` with the DeepSeek target and the draft that takes the embedding as its first slot.

    Args:
        how: as ``probed`` takes it, ``variables`` and the rest.
    """
    return probed(models["deepseek"], models["deepseek-draft-embed"], place, **how)


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "sglang_eagle3_probe.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def only(trace: Trace, record_type: type[Record]) -> list[Any]:
    """Records of a type from the only process of a trace."""
    assert len(trace.processes) == 1, [p.name for p in trace.processes]
    return list(trace.processes[0].of(record_type))


def newest(trace: Trace, record_type: type[Record]) -> Any:
    """The newest record of a type from the only process of a trace."""
    return only(trace, record_type)[-1]


def tokens(answers: list[Generation]) -> list[tuple[int, ...]]:
    """Output ids of each answer."""
    return [a.output_ids for a in answers]


def accept_length(answers: list[Generation]) -> float:
    """1 + correct drafts per verify round, over all answers (the bonus token counts)."""
    rounds = sum(int(a.meta_info["spec_verify_ct"]) for a in answers)
    correct = sum(int(a.meta_info["spec_num_correct_drafts"]) for a in answers)
    return 1 + correct / rounds
