"""The rig's server: two ranks, sampling, hidden states, and that no process is ever left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from rig.server import RigServer, RigServerError

NEW_TOKENS = 64
PROMPTS = [[(37 * i + 11 * j) % 2000 + 2 for j in range(5 + i)] for i in range(8)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from rig.models import write_deepseek_v3, write_eagle3_draft

    place = tmp_path_factory.mktemp("models")
    target = write_deepseek_v3(place / "target")
    return target, write_eagle3_draft(place / "draft", target)


@pytest.fixture(scope="module")
def expected(pair: tuple[Path, Path]) -> list[tuple[int, ...]]:
    from rig.reference import greedy_tokens

    return greedy_tokens(pair[0], PROMPTS, NEW_TOKENS)


def group_members(group: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.Error):
            continue
    return found


def test_two_tensor_parallel_ranks(
    pair: tuple[Path, Path], expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with RigServer(*pair, topk=4, tp=2, log_file=tmp_path / "log") as server:
        assert len(server.scheduler_pids()) == 2
        answers = server.generate(PROMPTS, NEW_TOKENS, ignore_eos=True)
        assert [a.output_ids for a in answers] == expected


@pytest.mark.parametrize("topk", [1, 4])
def test_seeded_sampling(pair: tuple[Path, Path], topk: int, tmp_path: Path) -> None:
    seeds = list(range(len(PROMPTS)))
    with RigServer(
        *pair,
        topk=topk,
        extra_args=["--enable-deterministic-inference"],
        log_file=tmp_path / "log",
    ) as server:

        def sample(seed: int | list[int]) -> list[tuple[int, ...]]:
            answers = server.generate(
                PROMPTS, 32, temperature=1.0, sampling_seed=seed, top_p=0.9, ignore_eos=True
            )
            return [a.output_ids for a in answers]

        first = sample(seeds)
        assert sample(seeds) == first
        assert sample(99) != first
        [alone] = server.generate(
            PROMPTS[3], 32, temperature=1.0, sampling_seed=3, top_p=0.9, ignore_eos=True
        )
        assert alone.output_ids == first[3]
        greedy = server.generate(PROMPTS, 32, ignore_eos=True)
        assert [a.output_ids for a in greedy] != first


def test_serve_command_hidden_states_abort_and_kill(
    pair: tuple[Path, Path], expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    said: list[str] = []
    server = RigServer(
        *pair,
        entry="serve",
        extra_args=["--enable-return-hidden-states"],
        log_file=tmp_path / "log",
        progress=said.append,
    )
    with server:
        assert said
        assert all("waiting for SGLang" in line for line in said)
        assert len(server.scheduler_pids()) == 1

        prompt = PROMPTS[0]
        [answer] = server.generate(prompt, 8, return_hidden_states=True, ignore_eos=True)
        assert answer.output_ids == expected[0][:8]
        states = answer.meta_info["hidden_states"]
        assert len(states[0]) == len(prompt)
        assert len(states[0][0]) == 3 * 192

        results: list[int] = []

        def long_request() -> None:
            results.extend(
                len(a.output_ids) for a in server.generate(PROMPTS[:2], 1500, ignore_eos=True)
            )

        thread = threading.Thread(target=long_request)
        thread.start()
        time.sleep(2)
        server.abort_all()
        thread.join(30)
        assert len(results) == 2
        assert all(count < 1500 for count in results)

        with pytest.raises(RigServerError, match="answered 400"):
            server.generate(prompt, temperature=-1.0)

        group = server.pid
        assert len(group_members(group)) >= 3
        server.kill9()
        assert group_members(group) == []
        server.kill9()


def test_a_server_that_dies_early_says_why(pair: tuple[Path, Path], tmp_path: Path) -> None:
    server = RigServer(
        *pair, extra_args=["--attention-backend", "nonsense"], log_file=tmp_path / "log"
    )
    with pytest.raises(RigServerError, match=r"(?s)exited with code 2.*nonsense"):
        server.start()
    with pytest.raises(RigServerError, match="not started"):
        _ = server.pid


def test_a_server_that_is_too_slow_is_stopped(pair: tuple[Path, Path], tmp_path: Path) -> None:
    server = RigServer(*pair, startup_timeout=1.0, log_file=tmp_path / "log")
    with pytest.raises(RigServerError, match="not ready after 1 s"):
        server.start()


def test_no_orphan_when_the_test_run_is_killed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from rig.server import RigServer\n"
        "server = RigServer(sys.argv[2], log_file=sys.argv[3])\n"
        "server._wait_until_ready = lambda began: None\n"
        "server.start(); print(server.pid, flush=True); input()\n"
    )
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            str(Path(__file__).parents[1]),
            str(pair[0]),
            str(tmp_path / "log"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    group = int(owner.stdout.readline())
    assert group_members(group)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 10
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert group_members(group) == []
