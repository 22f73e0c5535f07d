"""The host never breaks: taps that raise, folders that cannot be written, a killed server."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import NEW_TOKENS, Models
from probed import cli, probed, probed_pair, tokens

from sglang_eagle3_probe.host.cost import EVERY_S
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import Fault, LayerIds

SITES = (
    "ranks",
    "arguments",
    "seams",
    "layer_ids",
    "aux_states",
    "target_extend",
    "draft_forward",
    "vocab_map",
    "weights",
    "acceptance",
    "static_findings",
    "probe_cost",
    "metrics",
)


def test_a_tap_that_raises_at_each_site_changes_no_token(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(models, tmp_path, variables={"fail_site": ",".join(SITES)}) as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        time.sleep(EVERY_S)  # the probe's own cost falls due with the next call
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        trace = run.trace(
            lambda t: {f.site for f in t.processes[0].of(Fault)} == set(SITES)  # type: ignore[attr-defined]
        )
    [process] = trace.processes
    last = {fault.site: fault for fault in process.of(Fault)}
    # Sites on the forward path run often enough to reach the limit; the others run once at load.
    for site in ("aux_states", "target_extend", "draft_forward", "acceptance"):
        if site != "target_extend":
            assert last[site].disabled, site
            assert last[site].count == 3
    assert all("InducedFault" in fault.error for fault in last.values())
    assert list(process.verify_rounds()) == []
    for site in SITES:
        assert f"tap {site} raised" in run.log


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=False)


def test_a_full_disk(
    models: Models,
    prompts: list[list[int]],
    plain: list[tuple[int, ...]],
    tiny_disk: Path,
    tmp_path: Path,
) -> None:
    with probed_pair(models, tmp_path, trace_directory=tiny_disk) as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        assert "No space left" in run.log
        # Space comes back: the trace goes on and says what it lost.
        subprocess.run(["mount", "-o", "remount,size=4m", str(tiny_disk)], check=True)
        answers = run.server.generate(prompts[:2], max_new_tokens=16)
        trace = run.trace(lambda t: bool(t.processes[0].losses.dropped_records))
    assert tokens(answers) == [t[:16] for t in plain[:2]]
    assert trace.processes[0].losses.write_errors > 0
    shown = cli("report", str(tiny_disk))
    assert "E3P901" in shown.stdout


def test_a_folder_that_cannot_be_made(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with probed_pair(models, tmp_path, trace_directory=tmp_path / "file" / "traces") as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        assert "cannot open a trace file" in run.log
        assert "captures boundaries [0, 3, 6]" in run.log


def test_killed_in_mid_run(models: Models, prompts: list[list[int]], tmp_path: Path) -> None:
    with probed_pair(models, tmp_path) as run:
        answers = run.server.generate(prompts[:4], max_new_tokens=32)
        run.rounds_match(answers)
        for pid in run.server.scheduler_pids():
            os.kill(pid, 9)
        run.server.kill9()
    trace = read(run.traces)
    [process] = trace.processes
    assert process.of(LayerIds)
    assert not process.ended_in_order
    assert sum(len(r.rids) for r in process.verify_rounds()) >= sum(
        a.meta_info["spec_verify_ct"] for a in answers
    )
    shown = cli("report", str(run.traces))
    assert shown.returncode in (0, 1), shown.stderr


def test_a_bad_variable_stops_before_anything_starts(models: Models, tmp_path: Path) -> None:
    from rig.server import RigServerError

    with (
        pytest.raises(RigServerError, match="exited"),
        probed(models["deepseek"], None, tmp_path, variables={"layer_ids": "two"}),
    ):
        raise AssertionError("it started")
    log = (tmp_path / "server.log").read_text(errors="replace")
    assert "SGLANG_EAGLE3_PROBE_LAYER_IDS='two'" in log
    assert "Fix:" in log
    assert "Traceback" not in log
