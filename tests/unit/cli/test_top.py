"""``top`` on traces that grow, rotate, tear, start again, or are not there yet."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
import samples

from sglang_eagle3_probe.analysis.live import LiveRun
from sglang_eagle3_probe.cli.top import Watch
from sglang_eagle3_probe.report.top_screen import Frame, ago, render, waiting
from sglang_eagle3_probe.trace.follow import LONGEST_LINE, Follower, NewestRun
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.recorder import Recorder
from sglang_eagle3_probe.trace.records import Fault, Header, Losses, Progress, Ranks

COMMAND = [sys.executable, "-m", "sglang_eagle3_probe.cli.main", "top"]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=60
    )


def append(path: Path, *records: Record, now_s: float | None = None) -> None:
    for record in records:
        record.wall_s = time.time() if now_s is None else now_s
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        stream.write(b"".join(msgspec.json.encode(r) + b"\n" for r in records))


def trace_file(place: Path, tp: int = 0, pid: int = 7, part: int = 0) -> Path:
    return place / f"probe-scheduler-tp{tp}-pid{pid}-part{part}.jsonl"


def head(tp: int = 0, size: int = 1, **changes: Any) -> Header:
    return samples.header(ranks=Ranks(tp_rank=tp, tp_size=size), **changes)


def drawn(watch: Watch, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    frame = Frame("probe-logs", watch.run, watch.notes(True), time.time())
    console.print(render(frame, width, height))
    return console.export_text().splitlines()


def rounds_of(watch: Watch) -> int:
    return watch.run.outcomes().total()


def test_written_while_followed(tmp_path: Path) -> None:
    place = tmp_path / "traces"
    watch = Watch(place)
    assert watch.read(1)
    assert "is not there yet" in watch.reason_to_wait
    place.mkdir()
    assert watch.read(1)
    assert "holds no trace file yet" in watch.reason_to_wait
    file = trace_file(place)
    file.write_bytes(msgspec.json.encode(head())[:40])
    assert watch.read(1)
    assert "not whole yet" in watch.reason_to_wait
    file.unlink()
    append(file, head(), *samples.clean(0))
    watch.read(1)
    assert not watch.reason_to_wait
    assert any("no verify round yet" in line for line in drawn(watch))
    for count in (10, 25, 40):
        append(file, *samples.rounds(15 if count > 10 else 10))
        watch.read(1)
        assert rounds_of(watch) == count
    shown = "\n".join(drawn(watch))
    assert "captures output ids o [-1, 2, 5] (h [0, 3, 6]), as trained" in shown
    assert "last minute (40 rounds)" in shown
    assert "since start (40)" in shown
    assert "scheduler tp0" in shown
    assert "losses: none" in shown


def test_a_torn_line_is_completed_and_a_damaged_one_counted(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    append(file, head())
    watch = Watch(tmp_path)
    [record] = samples.rounds(1)
    line = msgspec.json.encode(record) + b"\n"
    with file.open("ab") as stream:
        stream.write(line[:50])
        stream.flush()
        watch.read(1)
        assert rounds_of(watch) == 0
        stream.write(line[50:])
        stream.flush()
        watch.read(1)
        assert rounds_of(watch) == 1
        stream.write(line[:50] + b"\n" + line)
        stream.flush()
    watch.read(1)
    assert rounds_of(watch) == 2
    assert watch.notes(True) == ["1 lines could not be read (torn or damaged)"]


def test_rotation_by_the_real_recorder(tmp_path: Path) -> None:
    recorder = Recorder(
        tmp_path, "scheduler", head, file_bytes=20_000, max_files=3, progress_s=0.05
    )
    watch, written = Watch(tmp_path), 0
    for _ in range(40):
        for record in samples.rounds(25):
            recorder.emit(record)
        written += 25
        assert recorder.flush()
        watch.read(1)
    assert len(list(tmp_path.iterdir())) == 3  # most parts came and went
    assert rounds_of(watch) == written
    assert len(watch.follower._places) <= 3  # and are forgotten
    assert watch.run.in_order()[0].losses.rotated_away_records > 0
    assert any("records rotated away" in line for line in drawn(watch))
    recorder.close("test")
    watch.read(1)
    assert any("ended: test" in line for line in drawn(watch))


def test_a_server_started_again_replaces_the_run(tmp_path: Path) -> None:
    now_s = time.time()
    for tp in range(2):
        append(trace_file(tmp_path, tp, 10 + tp), head(tp, 2), now_s=now_s - 100)
        append(trace_file(tmp_path, tp, 10 + tp), *samples.rounds(50), now_s=now_s - 90)
    watch = Watch(tmp_path)
    watch.read(1)
    assert rounds_of(watch) == 50
    assert len(watch.run.ranks) == 2
    append(trace_file(tmp_path, 0, 20), head(0, 2), *samples.rounds(7))
    watch.read(1)
    assert rounds_of(watch) == 7
    append(trace_file(tmp_path, 1, 21), head(1, 2), *samples.rounds(7))
    # The old run's last words do not disturb.
    append(trace_file(tmp_path, 1, 11), *samples.rounds(3))
    watch.read(1)
    assert rounds_of(watch) == 7
    assert [rank.name[-2:] for rank in watch.run.in_order()] == ["20", "21"]
    assert "newest of 2 runs in this directory" in watch.notes(True)


def test_a_directory_that_is_emptied(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    append(file, head(), *samples.rounds(5))
    watch = Watch(tmp_path)
    watch.read(1)
    file.unlink()
    watch.read(1)
    assert "holds no trace file yet" in watch.reason_to_wait


def test_reading_much_is_interrupted(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    append(file, head(), *samples.rounds(4_000))
    watch = Watch(tmp_path)
    calls = 1
    while not watch.read(0.0):
        calls += 1
    assert calls > 10
    assert rounds_of(watch) == 4_000
    assert any("reading what was written before: 100%" in note for note in watch.notes(False))


def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    append(file, head())
    with file.open("ab") as stream:
        stream.write(b"x" * (LONGEST_LINE + 10_000_000))
    follower = Follower(tmp_path)
    assert len(list(follower.poll())) == 1
    assert follower.unread_lines == 1
    assert sum(map(len, follower._rests.values())) < LONGEST_LINE


def test_the_header_of_a_later_part_will_do(tmp_path: Path) -> None:
    trace_file(tmp_path, part=0).write_bytes(b"garbage\n")
    append(trace_file(tmp_path, part=1), head(), *samples.rounds(5))
    newest = NewestRun(tmp_path)
    newest.look()
    assert newest.processes == {"probe-scheduler-tp0-pid7"}
    assert newest.headless == 0


def busy(ranks: int, steps: int) -> Watch:
    """A run with much to show."""
    watch = Watch(Path("nowhere"))
    now_s = time.time()
    for tp in range(ranks):
        name = f"probe-scheduler-tp{tp}-pid{tp}"
        fault = Fault(site="aux_states", error="E", traceback="", count=3, disabled=True)
        losses = Losses(
            dropped_records={"verify_round": 5},
            faults={"aux_states": 3},
            missed={"refusal_round": 2},
        )
        records: list[Record] = [
            head(tp, ranks),
            *samples.clean(0),
            *samples.rounds(300, (0.8,) * steps),
            fault,
            Progress(records_written=1, bytes_written=1, losses=losses),
        ]
        for number, record in enumerate(records):
            record.wall_s = now_s - 20 + 0.05 * number
            watch.run.add(name, record)
            if number % 3 == 0 and getattr(record, "correct_drafts", [steps])[0] < steps:
                told = samples.refusals(
                    record.rids[0],  # type: ignore[attr-defined]
                    record.rounds[0],  # type: ignore[attr-defined]
                    positions=record.correct_drafts,  # type: ignore[attr-defined]
                    ranks=[number % 12 + 2],
                )
                told.wall_s = record.wall_s
                watch.run.add(name, told)
    return watch


def test_rounds_that_were_passed_over_are_not_in_the_title() -> None:
    watch = busy(1, 3)
    [name] = watch.run.ranks
    for record in samples.rounds(100, (0.8,) * 3):
        record.looked_at = [False] * len(record.rids)  # type: ignore[attr-defined]
        record.wall_s = time.time()
        watch.run.add(name, record)
    assert watch.run.outcomes().total() == 400
    text = "\n".join(drawn(watch, 132, 50))
    assert "in 300 rounds)" in text


@pytest.mark.parametrize("size", [(80, 24), (80, 30), (132, 50), (100, 20), (60, 16), (40, 14)])
@pytest.mark.parametrize(("ranks", "steps"), [(1, 3), (8, 3), (16, 12)])
def test_a_frame_fits(size: tuple[int, int], ranks: int, steps: int) -> None:
    width, height = size
    lines = drawn(busy(ranks, steps), width, height)
    assert len(lines) <= height, "\n".join(lines)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "losses: " in text
    assert (f"{2 * ranks} not looked at (refusal_round" in text) is (width >= 80)
    assert "scheduler tp0" in text
    assert "accept length" in text
    if ranks * steps > 100 and height >= 20:
        assert any(line.strip().endswith(" more") for line in lines) is (height < 40)


def test_a_usual_terminal_shows_it_all() -> None:
    text = "\n".join(drawn(busy(2, 3)))
    for words in (
        "level wiring",
        "steps 3 topk 1",
        "first refused drafts",
        "not recorded",
        "scheduler tp1",
        "running",
        "tap aux_states raised 6 times and is off",
        "10 records lost (verify_round 10)",
    ):
        assert words in text, text


def test_control_characters_of_a_trace_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    file = trace_file(tmp_path)
    record = samples.arguments(target_architecture=evil)
    append(file, head(sglang_version=evil), record, samples.layer_ids([1, 2]))
    append(file, Fault(site=evil, error=evil, traceback="", count=1, disabled=False))
    done = run(tmp_path, "--once")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "owned" in done.stdout


def test_once(tmp_path: Path) -> None:
    append(trace_file(tmp_path), head(), *samples.clean(40))
    done = run(tmp_path, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "accept length" in done.stdout
    assert "q quits" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_once_says_what_is_missing(tmp_path: Path) -> None:
    for place, words in ((tmp_path / "no", "does not exist"), (tmp_path, "holds no trace file")):
        done = run(place, "--once")
        assert done.returncode == 2
        assert words in done.stderr
        assert "Fix:" in done.stderr
    trace_file(tmp_path).write_text("{torn")
    done = run(tmp_path, "--once")
    assert done.returncode == 2
    assert "not whole yet" in done.stderr


def test_without_a_terminal(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert "--once" in done.stderr
    assert run(tmp_path, "--interval", "0").returncode == 2


def test_waiting_and_words() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(waiting("x", "y is not there yet"))
    assert "waiting: y is not there yet" in console.export_text()
    assert [ago(s) for s in (-5, 3, 119, 121, 7_201, 200_000)] == [
        "0 s",
        "3 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]
    assert LiveRun().in_order() == []
