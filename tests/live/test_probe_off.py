"""Installed but off: nothing is wrapped; and on against off, the tokens are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import probed, tokens
from rig.server import RigServer, RigServerError, rig_environment

BOUNDARIES = [0, 3, 6]

CHILD = """
import multiprocessing, sys

def child(queue):
    from sglang_eagle3_probe import plugin
    plugin.register()
    import sglang.srt.managers.scheduler, sglang.srt.speculative.eagle_worker_v2
    import sglang.srt.models.deepseek_v2, sglang.srt.models.llama_eagle3, sglang.srt.models.kimi_k25
    queue.put((wrapped(), [m for m in sys.modules if m.startswith("sglang_eagle3_probe")]))

def wrapped():
    import inspect, wrapt
    found = []
    for name, module in list(sys.modules.items()):
        if not name.startswith("sglang."):
            continue
        for owner in [module, *[v for v in vars(module).values() if inspect.isclass(v)]]:
            for key, value in list(vars(owner).items()):
                value = value.__func__ if type(value) is staticmethod else value
                if type(value) is wrapt.FunctionWrapper:
                    found.append(f"{getattr(owner, '__qualname__', owner.__name__)}.{key}")
    return sorted(set(found))

if __name__ == "__main__":
    import sglang_eagle3_probe.plugin as plugin
    plugin.register()
    import sglang.srt.server_args
    print("main", wrapped())
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print("child", *queue.get(timeout=240))
    process.join()
"""


def inspect_processes(tmp_path: Path, **variables: str) -> dict[str, str]:
    script = tmp_path / "inspect_processes.py"
    script.write_text(CHILD)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=rig_environment(variables),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    return {line[0]: line[1] for line in lines if line[0] in ("main", "child")}


def test_off_means_nothing_of_sglang_is_wrapped_but_the_flags(tmp_path: Path) -> None:
    seen = inspect_processes(tmp_path)
    assert seen["main"] == "['ServerArgs.add_cli_args']"
    assert seen["child"].startswith("[] ")
    for part in ("attach", "host", "taps", "patches", "trace"):
        assert f"sglang_eagle3_probe.{part}" not in seen["child"]


def test_on_wraps_what_the_table_says(tmp_path: Path) -> None:
    seen = inspect_processes(tmp_path, SGLANG_EAGLE3_PROBE="1")
    assert seen["main"] == "['ServerArgs.add_cli_args']"
    for target in ("Scheduler.__init__", "LogitsProcessor.forward", "LlamaModel.forward"):
        assert f"'{target}'" in seen["child"]


def test_stock_sglang_dies_of_minus_one(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    """The negative control: without the patch this list cannot be served at all."""
    with RigServer(
        models["deepseek"], models["deepseek-draft-embed"], log_file=tmp_path / "log"
    ) as server:
        with pytest.raises(RigServerError):
            server.generate([prompts[0]], max_new_tokens=4)
        assert "captured 2 of 3 aux hidden states" in server.log_file.read_text(errors="replace")
        assert "eagle3-probe" not in server.log_file.read_text(errors="replace")


def _generate(server: RigServer, prompts: list[list[int]]) -> list[Any]:
    """The same sequence of calls on every server: greedy, then seeded sampling."""
    greedy = server.generate(prompts, max_new_tokens=NEW_TOKENS)
    sampled = []
    for seed, prompt in enumerate(prompts[:4]):
        sampled += server.generate(
            [prompt], max_new_tokens=32, temperature=0.8, sampling_seed=1000 + seed
        )
    return [tokens(greedy), tokens(sampled)]


def test_tokens_are_equal_with_the_probe_on_and_off(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    draft = models.variant("deepseek-draft-embed", "as-boundaries", aux_layer_ids=BOUNDARIES)
    flags = ["--enable-deterministic-inference"]
    with RigServer(
        models["deepseek"], draft, extra_args=flags, log_file=tmp_path / "off.log"
    ) as server:
        off = _generate(server, prompts)
    with probed(models["deepseek"], draft, tmp_path / "on", extra_args=flags) as run:
        on = _generate(run.server, prompts)
        assert run.log_lines
    assert on == off
    assert off[0] == plain
    assert off[1] != [t[:32] for t in plain[:4]], "sampling never left the greedy path"
    assert "eagle3-probe" not in (tmp_path / "off.log").read_text(errors="replace")
