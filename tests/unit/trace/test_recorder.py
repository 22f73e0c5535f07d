"""The recorder under the faults a server meets."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from unit.trace import samples

from sglang_eagle3_probe.trace import writer as writer_module
from sglang_eagle3_probe.trace.reader import ProcessTrace, read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.recorder import WIRING_RESERVE, Recorder
from sglang_eagle3_probe.trace.records import Fault, Footer, Header, Progress, Ranks, Seams

ROOT = Path(__file__).parents[3]
LOGGER = "sglang_eagle3_probe"


def make(directory: Path, **changes: Any) -> Recorder:
    return Recorder(directory, "scheduler", samples.header, **changes)


def only(directory: Path) -> ProcessTrace:
    (process,) = read(directory).processes
    return process


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def fault(site: str = "aux_states", **changes: Any) -> Fault:
    values: dict[str, Any] = {"error": "E", "traceback": "T", "count": 1, "disabled": False}
    return Fault(site=site, **{**values, **changes})


def test_everything_handed_over_is_read_back(tmp_path: Path) -> None:
    recorder = make(tmp_path / "a" / "b")
    for record in samples.clean(300):
        recorder.emit(record)
    recorder.close("test")
    process = only(tmp_path / "a" / "b")
    assert process.rounds.total == 300
    assert process.read == 311
    assert process.missing == 0
    assert process.problems == []
    footer = process.newest(Footer)
    assert footer is not None
    assert footer.reason == "test"
    assert footer.records_written == 310
    assert process.header is not None
    assert process.header.pid == os.getpid()


def test_what_was_missed_is_in_progress_and_footer(tmp_path: Path) -> None:
    recorder = make(tmp_path, progress_s=0.05)
    recorder.emit(fault())
    recorder.missed("refusal_round", 3)
    recorder.missed("refusal_round")
    wait_for(
        lambda: recorder.path is not None and b'"refusal_round":4' in recorder.path.read_bytes()
    )
    recorder.missed("stats_snapshot")
    recorder.close("test")
    assert only(tmp_path).losses.missed == {"refusal_round": 4, "stats_snapshot": 1}


def test_file_is_private_and_named_after_its_ranks(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    recorder = make(directory)
    recorder.emit(samples.seams())
    recorder.close("test")
    assert recorder.path == directory / f"probe-scheduler-tp0-pid{os.getpid()}-part0.jsonl"
    assert stat.S_IMODE(recorder.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_without_a_record_there_is_no_file(tmp_path: Path) -> None:
    recorder = make(tmp_path / "new")
    recorder.close("test")
    assert not (tmp_path / "new").exists()


def test_an_older_file_of_the_same_process_id_survives(tmp_path: Path) -> None:
    for _ in range(3):
        recorder = make(tmp_path)
        recorder.emit(samples.seams())
        recorder.close("test")
    names = sorted(p.name for p in tmp_path.iterdir())
    pid = os.getpid()
    assert names == sorted(
        f"probe-scheduler-tp0-pid{pid}{run}-part0.jsonl" for run in ("", "r2", "r3")
    )
    assert len(read(tmp_path).runs()) == 3


def test_close_is_idempotent_and_later_records_are_counted(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.emit(samples.seams())
    recorder.close("first")
    recorder.close("second")
    recorder.emit(samples.seams())
    assert recorder.losses().dropped_records == {"seams": 1}
    footer = only(tmp_path).newest(Footer)
    assert footer is not None
    assert footer.reason == "first"


def test_rotation_keeps_all_wiring_and_the_newest_rounds(tmp_path: Path) -> None:
    recorder = make(tmp_path, file_bytes=4000, max_files=3)
    recorder.emit(samples.seams())
    for i, record in enumerate(samples.rounds(600)):
        recorder.emit(record)
        if i % 100 == 0:
            recorder.emit(samples.aux_states(calls=i))
    recorder.close("test")
    parts = sorted(int(p.stem.rsplit("part", 1)[1]) for p in tmp_path.iterdir())
    assert len(parts) == 3
    assert parts[0] == 0
    assert parts[2] == parts[1] + 1
    process = only(tmp_path)
    assert len(process.of(Seams)) == 1
    assert [r.calls for r in process.of(samples.AuxStates)] == [0, 100, 200, 300, 400, 500]
    losses = process.losses
    assert losses.rotated_away_records > 0
    assert losses.rotated_away_records + process.rounds.total == 600
    assert process.problems == []  # what rotated away is not taken for a gap
    newest = list(process.verify_rounds())[-1]
    assert newest.context_lens == [50 + 599]
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b'{"type":"header"')


@pytest.mark.parametrize(
    "make_record",
    [
        samples.request_start,
        samples.request_end,
        samples.refusals,
        samples.phase_times,
        samples.probe_cost,
    ],
)
def test_what_keeps_coming_rotates_away(tmp_path: Path, make_record: Callable[[], Record]) -> None:
    recorder = make(tmp_path, file_bytes=4000, max_files=2)
    recorder.emit(samples.seams())
    for _ in range(200):
        recorder.emit(make_record())
    recorder.close("test")
    process = only(tmp_path)
    assert len(process.of(Seams)) == 1
    assert process.losses.dropped_records == {}
    kept = len(process.of(type(make_record())))
    assert 0 < kept < 200
    assert kept + process.losses.rotated_away_records == 200


def test_runaway_wiring_is_bounded(tmp_path: Path) -> None:
    recorder = make(tmp_path, file_bytes=4000, max_files=2)
    for _ in range(200):
        recorder.emit(samples.seams())
    recorder.close("test")
    assert recorder.losses().dropped_records["seams"] > 100
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 20_000


def test_full_queue_drops_rounds_before_wiring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    original = writer_module.Writer.write

    def slow(self: writer_module.Writer, records: Any) -> None:
        gate.wait(10)
        original(self, records)

    monkeypatch.setattr(writer_module.Writer, "write", slow)
    recorder = make(tmp_path, queue_records=10)
    recorder.emit(samples.seams())
    wait_for(lambda: not recorder._queue)  # the writer holds the first and waits at the gate
    for record in samples.rounds(50):
        recorder.emit(record)
    for _ in range(20):
        recorder.emit(samples.seams())
    assert recorder.losses().dropped_records == {"verify_round": 40}
    for _ in range(WIRING_RESERVE):
        recorder.emit(samples.seams())
    assert recorder.losses().dropped_records["seams"] == 20
    with caplog.at_level(logging.WARNING, LOGGER):
        gate.set()
        recorder.close("test", timeout_s=10)
    warnings = [r.getMessage() for r in caplog.records]
    assert len([w for w in warnings if "faster than" in w]) == 1
    assert "Fix: " in warnings[0]
    process = only(tmp_path)
    assert process.losses.dropped_records == {"verify_round": 40, "seams": 20}
    assert process.problems == []  # the gap in the sequence is told


def test_unwritable_directory_is_told_once_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "FIRST_BACK_OFF_S", 0.05)
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    recorder = make(blocked / "traces", progress_s=0.05)
    with caplog.at_level(logging.WARNING, LOGGER):
        recorder.emit(samples.seams())
        for record in samples.rounds(5):
            recorder.emit(record)
        wait_for(lambda: recorder.losses().write_errors > 1)
    assert recorder.losses().dropped_records["verify_round"] == 5
    warnings = [r.getMessage() for r in caplog.records]
    assert len(warnings) == 1
    assert "Serving is not affected" in warnings[0]
    assert "Fix: " in warnings[0]
    blocked.unlink()
    wait_for(lambda: recorder.path is not None)
    recorder.close("test")
    process = only(blocked / "traces")
    assert len(process.of(Seams)) == 1  # wiring waited in memory
    assert process.losses.dropped_records["verify_round"] == 5


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, room: int) -> Iterator[dict[str, int]]:
    """``os.write`` on a disk with ``room`` bytes left, which says ENOSPC as a kernel does."""
    state = {"room": room}
    original = os.write

    def write(fd: int, data: Any) -> int:
        if len(data) <= state["room"]:
            state["room"] -= len(data)
            return original(fd, data)
        if state["room"] > 0:
            part = original(fd, data[: state["room"]])
            state["room"] = 0
            return part
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        yield state


def test_full_disk_costs_one_torn_line_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "FIRST_BACK_OFF_S", 0.05)
    recorder = make(tmp_path, progress_s=0.05)
    with full_disk(monkeypatch, 1300) as disk, caplog.at_level(logging.INFO, LOGGER):
        recorder.emit(samples.seams())
        for record in samples.rounds(20):
            recorder.emit(record)
        recorder.emit(samples.weights())
        wait_for(lambda: recorder.losses().write_errors > 1)
        disk["room"] = 1 << 30
        wait_for(lambda: any("written again" in r.getMessage() for r in caplog.records))
        recorder.emit(samples.rounds(1)[0])
        recorder.close("test")
    process = only(tmp_path)
    assert [(p.kind, p.count) for p in process.problems] == [("torn_line", 1)]
    assert process.newest(samples.Weights) is not None  # wiring was kept and written later
    dropped = process.losses.dropped_records["verify_round"]
    assert 0 < dropped < 20
    assert process.rounds.total == 20 - dropped + 1
    full = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(full) == 1
    assert "No space left" in full[0].getMessage()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs takes root")
def test_really_full_disk(tmp_path: Path) -> None:
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mount.returncode:
        pytest.skip(f"no tmpfs here: {mount.stderr.decode().strip()}")
    try:
        recorder = make(tmp_path)
        recorder.emit(samples.seams())
        for record in samples.rounds(500):
            recorder.emit(record)
        recorder.close("test")
        assert recorder.losses().write_errors > 0
        process = only(tmp_path)
        assert process.rounds.total > 50
        assert len(process.of(Seams)) == 1
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_deleted_file_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = make(tmp_path, progress_s=0.05)
    recorder.emit(samples.seams())
    wait_for(lambda: recorder.path is not None and recorder.flush())
    assert recorder.path is not None
    recorder.path.unlink()
    with caplog.at_level(logging.WARNING, LOGGER):
        recorder.emit(samples.weights())
        wait_for(lambda: "deleted" in caplog.text)
    recorder.emit(samples.vocab_map())
    recorder.close("test")
    assert only(tmp_path).newest(samples.VocabMap) is not None


def test_unencodable_record_is_counted_and_the_rest_written(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.emit(samples.arguments(target_path="\udc80"))
    recorder.emit(samples.arguments(in_force={"x": object()}))  # becomes text
    recorder.emit(samples.seams())
    recorder.close("test")
    process = only(tmp_path)
    assert process.losses.dropped_records == {"arguments": 1}
    assert "object object" in process.of(samples.Arguments)[0].in_force["x"]
    assert len(process.of(Seams)) == 1


def test_failing_header_factory_does_not_cost_the_trace(tmp_path: Path) -> None:
    def broken() -> Header:
        raise RuntimeError("no ranks yet")

    recorder = Recorder(tmp_path, "scheduler", broken)
    recorder.emit(samples.seams())
    recorder.close("test")
    process = only(tmp_path)
    assert len(process.of(Seams)) == 1
    assert process.losses.faults == {"recorder.header": 1}


def test_emit_never_raises(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.emit(None)  # type: ignore[arg-type]
    assert recorder.losses().faults == {"recorder.emit": 1}
    recorder.close("test")


def test_faults_are_counted_and_written(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.record_fault(fault(count=1))
    recorder.record_fault(fault(count=2))
    recorder.record_fault(fault(count=3, disabled=True))
    recorder.record_fault(fault("vocab_map"))
    recorder.close("test")
    process = only(tmp_path)
    assert process.losses.faults == {"aux_states": 3, "vocab_map": 1}
    assert process.losses.disabled_sites == ["aux_states"]
    assert len(process.of(Fault)) == 4


def test_progress_is_written_while_records_flow_and_not_when_idle(tmp_path: Path) -> None:
    recorder = make(tmp_path, progress_s=0.05)
    recorder.emit(samples.seams())
    wait_for(lambda: b'"progress"' in b"".join(p.read_bytes() for p in tmp_path.iterdir()))
    time.sleep(0.5)
    assert recorder.path is not None
    assert recorder.path.read_bytes().count(b'"type":"progress"') == 1
    recorder.record_fault(fault())
    recorder.close("test")


def test_hand_over_is_cheap_and_many_threads_lose_nothing(tmp_path: Path) -> None:
    recorder = make(tmp_path, queue_records=100_000)
    batches = [samples.rounds(2000, seed=n) for n in range(4)]

    def send(batch: list[Any]) -> None:
        for record in batch:
            recorder.emit(record)

    threads = [threading.Thread(target=send, args=(batch,)) for batch in batches]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    per_record_s = (time.perf_counter() - started) / 8000
    recorder.close("test", timeout_s=20)
    process = only(tmp_path)
    assert process.rounds.total == 8000
    assert process.missing == 0
    assert per_record_s < 100e-6  # usually under 2 microseconds; the bound allows a busy machine


CHILD = """
import os, sys, time
sys.path[:0] = [{tests!r}, {root!r}]
from unit.trace import samples
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.recorder import Recorder
recorder = Recorder({directory!r}, "scheduler", samples.header)
for record in samples.clean(0):
    recorder.emit(record)
for record in samples.rounds(100000):
    recorder.emit(record)
    if record.context_lens[0] == 2000:
        recorder.flush(); print("ready", flush=True)
    if record.context_lens[0] > 2000:
        time.sleep(0.0002)
"""


def child_code(directory: Path) -> str:
    return textwrap.dedent(CHILD).format(
        tests=str(ROOT / "tests"), root=str(ROOT), directory=str(directory)
    )


def test_kill_9_leaves_a_readable_trace(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", child_code(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    process = only(tmp_path)
    assert not process.ended_in_order
    assert process.rounds.total >= 1900
    assert process.newest(samples.LayerIds) is not None
    assert {p.kind for p in process.problems} <= {"torn_last_line"}


@pytest.mark.parametrize(
    ("ending", "reason"),
    [("", "process exit"), ("sys.exit(3)", "process exit"), ("os._exit(0)", "")],
)
def test_end_of_process(tmp_path: Path, ending: str, reason: str) -> None:
    head = child_code(tmp_path).split("for record in samples.rounds")[0]
    code = f"{head}\nrecorder.flush()\n{ending}\n"
    subprocess.run([sys.executable, "-c", code], check=False)
    footer = only(tmp_path).newest(Footer)
    assert (footer.reason if footer else "") == reason


def _in_child(recorder: Recorder | None, directory: Path) -> None:
    recorder = recorder or make(directory)
    for record in samples.rounds(7):
        recorder.emit(record)


def test_forked_child_starts_its_own_trace(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.emit(samples.seams())
    recorder.flush()
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_in_child, args=(recorder, tmp_path))
    child.start()
    child.join()
    recorder.emit(samples.weights())
    recorder.close("parent")
    traces = {p.newest(Footer).reason: p for p in read(tmp_path).processes}  # type: ignore[union-attr]
    assert set(traces) == {"parent", "process exit"}
    assert traces["parent"].rounds.total == 0
    assert traces["parent"].newest(samples.Weights) is not None
    assert traces["process exit"].rounds.total == 7
    assert traces["process exit"].missing == 0
    assert traces["process exit"].of(Seams) == []


def test_spawned_child_writes_its_footer(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_in_child, args=(None, tmp_path))
    child.start()
    child.join()
    process = only(tmp_path)
    assert process.rounds.total == 7
    assert process.ended_in_order


def test_ranks_in_the_name_are_those_known(tmp_path: Path) -> None:
    recorder = Recorder(
        tmp_path, "main", lambda: samples.header(role="main", ranks=Ranks(dp_rank=3))
    )
    recorder.emit(samples.seams())
    recorder.close("test")
    assert recorder.path is not None
    assert recorder.path.name == f"probe-main-dp3-pid{os.getpid()}-part0.jsonl"
    assert only(tmp_path).label == "main dp3"
    assert only(tmp_path).of(Progress) == []


def test_single_data_and_pipeline_ranks_are_left_out_of_the_name(tmp_path: Path) -> None:
    ranks = Ranks(tp_rank=1, tp_size=2, dp_rank=0, dp_size=1, pp_rank=0, pp_size=1)
    recorder = Recorder(tmp_path, "scheduler", lambda: samples.header(ranks=ranks))
    recorder.emit(samples.seams())
    recorder.close("test")
    assert recorder.path is not None
    assert recorder.path.name == f"probe-scheduler-tp1-pid{os.getpid()}-part0.jsonl"
    assert only(tmp_path).label == "scheduler tp1"


def test_no_thread_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def refuse(self: threading.Thread) -> None:
        tries.append(self)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        recorder = make(tmp_path)
        for _ in range(100):
            recorder.emit(samples.seams())
    assert len(tries) == 1
    assert recorder.losses().faults == {"recorder.emit": 1}
    recorder.close("test")
