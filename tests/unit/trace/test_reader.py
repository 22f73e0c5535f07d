"""Damaged, foreign and large traces."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import msgspec
import pytest
from unit.trace import samples

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.follow import Follower
from sglang_eagle3_probe.trace.reader import TraceError, read
from sglang_eagle3_probe.trace.records import Losses, Ranks, Seams


def kinds(path: Path) -> list[tuple[str, int]]:
    (process,) = read(path).processes
    return [(p.kind, p.count) for p in process.problems]


@pytest.mark.parametrize("state", ["missing", "empty", "foreign", "empty file", "garbage"])
def test_nothing_to_read_says_what_to_do(tmp_path: Path, state: str) -> None:
    place = tmp_path / "logs"
    if state != "missing":
        place.mkdir()
    if state == "foreign":
        (place / "server.log").write_text("hello")
    if state == "empty file":
        (place / "probe-scheduler-pid1-part0.jsonl").touch()
    if state == "garbage":
        (place / "probe-scheduler-pid1-part0.jsonl").write_bytes(b"\xff\x00\n{]\n")
    with pytest.raises(TraceError) as caught:
        read(place)
    assert str(place) in str(caught.value)
    assert "Expected: " in str(caught.value)
    assert "Fix: " in str(caught.value)


def test_a_directory_above_the_trace_names_it(tmp_path: Path) -> None:
    samples.write(tmp_path / "run1", samples.clean(1))
    with pytest.raises(TraceError, match=r"name .*run1"):
        read(tmp_path)


def test_a_single_file_will_do(tmp_path: Path) -> None:
    path = samples.write(tmp_path, samples.clean(5)).rename(tmp_path / "sent-by-mail.jsonl")
    (process,) = read(path).processes
    assert process.rounds.total == 5


def test_a_cut_anywhere_loses_at_most_one_line(tmp_path: Path) -> None:
    path = samples.write(tmp_path, samples.clean(3))
    whole = path.read_bytes()
    for cut in range(1, len(whole), 37):
        path.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        try:
            (process,) = read(tmp_path).processes
        except TraceError:
            assert lines == 0
            continue
        assert process.read == max(0, lines - 1)
        expected = [] if whole[cut - 1] == ord("\n") else [("torn_last_line", 1)]
        assert [(p.kind, p.count) for p in process.problems] == expected


def test_torn_line_in_the_middle_is_counted(tmp_path: Path) -> None:
    path = samples.write(tmp_path, samples.clean(3))
    lines = path.read_bytes().split(b"\n")
    lines[4] = lines[4][:20]
    path.write_bytes(b"\n".join(lines))
    assert kinds(tmp_path) == [("torn_line", 1), ("gap", 1)]


def test_gaps_are_told_unless_the_trace_accounts_for_them(tmp_path: Path) -> None:
    path = samples.write(
        tmp_path, samples.clean(10), losses=Losses(dropped_records={"verify_round": 2})
    )
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for i, line in enumerate(lines) if i not in {12, 13}))
    assert kinds(tmp_path) == []
    path.write_bytes(b"".join(line for i, line in enumerate(lines) if i not in {12, 13, 14}))
    assert kinds(tmp_path) == [("gap", 1)]


def test_unknown_types_and_fields_do_not_stop_the_reader(tmp_path: Path) -> None:
    path = samples.write(tmp_path, samples.clean(2))
    lines = path.read_bytes().splitlines()
    lines.insert(2, b'{"type":"from_the_future","seq":13,"x":1}')
    lines.insert(3, b'{"type":"seams","seq":14,"seams":"not a list"}')
    lines[1] = lines[1][:-1] + b',"new_field":{"a":[1]}}'
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert kinds(tmp_path) == [("unknown_type", 1), ("bad_record", 1)]
    (process,) = read(tmp_path).processes
    assert len(process.of(Seams)) == 1


def test_newer_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean(2), head=samples.header(format_version=99))
    with pytest.raises(TraceError, match=r"format 99.*pip install -U"):
        read(tmp_path)


def test_missing_header_and_missing_first_part(tmp_path: Path) -> None:
    path = samples.write(tmp_path, samples.clean(2))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    assert kinds(tmp_path) == [("no_header", 1)]
    path.unlink()
    samples.write(tmp_path, samples.clean(2), part=4)
    assert kinds(tmp_path) == [("no_first_part", 1)]


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.write(tmp_path, samples.clean(2))

    def refuse(*_: object, **__: object) -> None:  # not chmod: root reads everything
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TraceError, match="as the user that ran the server"):
        read(tmp_path)


def test_unreadable_part_is_a_problem_of_that_part(tmp_path: Path) -> None:
    samples.write(tmp_path, samples.clean(2))
    (tmp_path / "probe-scheduler-tp0-pid4242-part1.jsonl").mkdir()
    assert kinds(tmp_path) == [("unreadable", 1)]


def test_runs_in_one_directory_are_told_apart(tmp_path: Path) -> None:
    for run, size in enumerate((1, 2, 2)):
        for rank in range(size):
            head = samples.header(
                ranks=Ranks(tp_rank=rank, tp_size=size), wall_s=1e9 + run * 100 + rank
            )
            name = f"probe-scheduler-tp{rank}-pid{run}{rank}"
            samples.write(tmp_path, samples.clean(run + 1), head=head, name=name)
    runs = read(tmp_path).runs()
    assert [[p.label for p in run.processes] for run in runs] == [
        ["scheduler tp0"],
        ["scheduler tp0", "scheduler tp1"],
        ["scheduler tp0", "scheduler tp1"],
    ]
    assert [p.rounds.total for p in read(tmp_path).newest_run().processes] == [3, 3]


def test_rounds_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    odd = samples.rounds(3)
    odd[0].correct_drafts = [4]
    odd[1].rids = ["a", "b"]
    odd[2].not_counted = ["c"]
    samples.write(tmp_path, list(odd))
    (process,) = read(tmp_path).processes
    assert process.rounds.total == 1
    assert process.rounds.impossible == 3
    assert process.rounds.not_counted == 1


def test_a_large_trace_is_summarised_in_little_memory(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(r) + b"\n" for r in samples.rounds(2000)]
    path = samples.write(tmp_path, samples.clean(0), footer=False)
    with path.open("ab") as out:
        for _ in range(100):
            out.writelines(lines)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (process,) = read(tmp_path).processes
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert process.rounds.total == 200_000
    assert VerifyRound not in process.records
    assert grown_mib < 40  # the file itself is 45 MiB


def test_follower_sees_each_line_once_and_waits_for_the_rest(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    follower = Follower(directory)
    assert list(follower.poll()) == []
    path = samples.write(directory, samples.clean(2), footer=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    first = list(follower.poll())
    path.write_bytes(whole)
    second = list(follower.poll())
    assert len(first) == 12
    assert len(second) == 1
    assert list(follower.poll()) == []
    assert first[0].process == "probe-scheduler-tp0-pid4242"
    samples.write(directory, samples.rounds(3), part=1)
    assert len(list(follower.poll())) == 5
    with path.open("ab") as out:
        out.write(b"{torn\n")
    assert list(follower.poll()) == []
    assert follower.unread_lines == 1
