"""Reading many lines at once gives what reading them one by one gives."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from unit.trace import samples

from sglang_eagle3_probe.trace import lines, parallel
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestStart, VerifyRound
from sglang_eagle3_probe.trace.columns import MISSING, RoundColumns
from sglang_eagle3_probe.trace.reader import Block, ProcessTrace, read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import AnyRecord, Header, Losses, Ranks, SlotStats
from sglang_eagle3_probe.trace.rounds import count


def start(rid: str) -> RequestStart:
    return RequestStart(
        rid=rid,
        prompt_tokens=9,
        cached_tokens=None,
        chunked_prefill=None,
        temperature=None,
        greedy=None,
        grammar=False,
    )


def batch(**changes: object) -> VerifyRound:
    values: dict[str, object] = {
        "steps": 3,
        "topk": 1,
        "proposed_drafts": 3,
        "rids": ["a", "b"],
        "rounds": [4, 0],
        "context_lens": [40, 9],
        "correct_drafts": [2, 0],
    }
    return VerifyRound(**{**values, **changes})  # type: ignore[arg-type]


def outcome_by_line(files: list[Path]) -> dict[str, object]:
    """The slow way: one line, one decoder call, one dictionary entry."""
    any_record = msgspec.json.Decoder(AnyRecord)
    outcomes: Counter[tuple[str, int, int]] = Counter()
    kinds: Counter[str] = Counter()
    torn, seqs = 0, []
    for file in files:
        for line in file.read_bytes().splitlines(keepends=True):
            if line == b"\n":
                continue
            if not line.endswith(b"\n"):
                kinds["torn_last_line"] += 1
                continue
            try:
                record = any_record.decode(line)
            except msgspec.ValidationError:
                kinds["unfit"] += 1
                continue
            except (msgspec.DecodeError, UnicodeDecodeError):
                torn += 1
                continue
            if isinstance(record, Header):
                continue
            seqs.append(record.seq)
            kinds[type(record).__name__] += 1
            if isinstance(record, VerifyRound):
                for rid, correct in zip(record.rids, record.correct_drafts, strict=True):
                    outcomes[rid, record.steps, correct] += 1
    return {"outcomes": outcomes, "torn": torn, "read": len(seqs), "kinds": kinds}


def outcome_of(process: ProcessTrace) -> dict[str, object]:
    kinds: Counter[str] = Counter({t.__name__: len(r) for t, r in process.records.items()})
    told = Counter[str]()
    for problem in process.problems:
        told[problem.kind] += problem.count
    kinds["VerifyRound"] = process.read - kinds.total()
    kinds["torn_last_line"] = told["torn_last_line"]
    kinds["unfit"] = told["unknown_type"] + told["bad_record"]
    outcomes = Counter(
        {
            (rid, steps, correct): n
            for rid, own in process.rounds.by_request.items()
            for (steps, correct), n in own.items()
        }
    )
    return {
        "outcomes": outcomes,
        "torn": told["torn_line"],
        "read": process.read,
        "kinds": +kinds,
    }


DAMAGE = (
    b"",
    b"{]",
    b"\xff\xfe",
    b"  ",
    b'{"type":"verify_round"}',
    b'{"type":"tomorrow","seq":5}',
    b'{"type":"seams","seams":3}',
    b"[1]",
    b"3",
    b'{"a":1}{"a":2}',
)


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_told_as_line_by_line(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = random.Random(seed)
    # Blocks from less than a line to the whole file: their borders may change nothing.
    size = random_.choice([50, 700, 5000, 1 << 20])
    monkeypatch.setattr(lines.blocks, "__defaults__", (size,))
    path = samples.write(tmp_path, [*samples.clean(60), start("a"), *samples.rounds(60)])
    written = path.read_bytes().splitlines()
    for _ in range(random_.randrange(6)):
        place = random_.randrange(1, len(written))
        change = random_.choice(["cut", "insert", "join", "drop"])
        if change == "cut":
            written[place] = written[place][: random_.randrange(len(written[place]))]
        elif change == "insert":
            written.insert(place, random_.choice(DAMAGE))
        elif change == "join":
            written[place - 1 : place + 1] = [b"".join(written[place - 1 : place + 1])]
        else:
            del written[place]
    whole = b"\n".join(written) + random_.choice([b"\n", b'\n{"type":"ver', b"\n\n"])
    path.write_bytes(whole)
    (process,) = read(tmp_path).processes
    expected = outcome_by_line([path])
    got = outcome_of(process)
    # Progress and other single records are the same by type; nothing is read twice or left out.
    assert got == expected


def test_several_processes_read_at_once_give_the_same(tmp_path: Path) -> None:
    for rank in range(5):
        head = samples.header(ranks=Ranks(tp_rank=0, tp_size=1, dp_rank=rank, dp_size=5))
        name = f"probe-scheduler-tp0-dp{rank}-pid{rank}"
        path = samples.write(
            tmp_path,
            [*samples.clean(30 + rank), samples.slot_stats("aux_verify")],
            head=head,
            name=name,
            losses=Losses(write_errors=rank),
        )
        rotated = list[Record](samples.rounds(9))
        samples.write(tmp_path, rotated, head=head, name=name, part=1, footer=False)
        if rank == 3:
            path.write_bytes(path.read_bytes()[:-7])
    alone = read(tmp_path, workers=1)
    together = read(tmp_path, workers=3)
    assert together == alone
    assert [p.losses.write_errors for p in together.processes] == [0, 1, 2, 0, 4]


@dataclass
class Seen:
    """A fold for these tests."""

    kinds: Counter[str] = field(default_factory=Counter)
    rids: list[str] = field(default_factory=list)
    headers: set[str] = field(default_factory=set)

    def add(self, block: Block) -> None:
        self.kinds.update(type(r).__name__ for r in block.records)
        self.rids += block.rounds.rid
        self.headers.add(block.header.role if block.header else "")


@pytest.mark.parametrize("workers", [1, 2])
def test_folds_see_everything_in_order_and_keep_what_they_like(
    tmp_path: Path, workers: int
) -> None:
    for rank in range(2):
        records: list[Record] = [start("a"), batch(), samples.slot_stats("aux_verify"), batch()]
        samples.write(tmp_path, records, name=f"probe-scheduler-tp{rank}-pid1")
    trace = read(tmp_path, folds=[Seen], leave_out=[SlotStats], workers=workers)
    for process in trace.processes:
        seen = process.fold(Seen)
        assert seen is not None
        assert seen.kinds == Counter(VerifyRound=2, RequestStart=1, SlotStats=1, Footer=1)
        assert seen.rids == ["a", "b", "a", "b"]
        assert seen.headers == {"scheduler"}
        assert not process.of(SlotStats)
        assert process.of(RequestStart)
        assert process.read == 5


def test_blocks_read_again_are_the_same(tmp_path: Path) -> None:
    path = samples.write(tmp_path, [batch(), start("a"), batch()])
    with path.open("ab") as out:
        out.write(b"{torn\n")
    (process,) = read(tmp_path).processes
    records = [r for block in process.blocks() for r in block.records]
    assert [type(r).__name__ for r in records] == [
        "VerifyRound",
        "RequestStart",
        "VerifyRound",
        "Footer",
    ]
    assert len(list(process.verify_rounds())) == 2


def test_a_lost_worker_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        samples.write(tmp_path, samples.clean(3), name=f"probe-scheduler-tp{rank}-pid1")
    expected = read(tmp_path, workers=1)

    def refuse(*_: object, **__: object) -> None:
        raise parallel.BrokenProcessPool("killed")

    monkeypatch.setattr(parallel.ProcessPoolExecutor, "submit", refuse)
    assert read(tmp_path, workers=2) == expected


def test_columns_repeat_what_belongs_to_the_batch() -> None:
    columns = RoundColumns(
        [
            batch(wall_s=1.0, seq=7, out_of_vocab=[True, None], greedy=[True, False]),
            batch(rids=["c"], rounds=[1], context_lens=[5], correct_drafts=[3], steps=4, topk=2),
        ]
    )
    assert columns.rid == ["a", "b", "c"]
    assert columns.round == [4, 0, 1]
    assert columns.steps == [3, 3, 4]
    assert columns.topk == [1, 1, 2]
    assert columns.proposed_drafts == [3, 3, 3]
    assert columns.correct_drafts == [2, 0, 3]
    assert columns.context_len == [40, 9, 5]
    assert columns.batch_size == [2, 2, 1]
    assert columns.wall_s == [1.0, 1.0, 0.0]
    assert columns.seq == [7, 7, -1]
    assert columns.out_of_vocab == [True, None, None]
    assert columns.greedy == [True, False, None]
    assert len(columns) == 3


def test_columns_leave_out_what_cannot_be() -> None:
    columns = RoundColumns(
        [
            batch(correct_drafts=[4, 1], out_of_vocab=[True, False], not_counted=["x"]),
            batch(rids=["a"]),
            batch(rounds=[1], greedy=[True]),
            batch(correct_drafts=[-1, 9]),
        ]
    )
    assert columns.impossible == 1 + 2 + 2
    assert columns.not_counted == 1
    assert columns.rid == ["b", "a", "b"]
    assert columns.round == [0, MISSING, MISSING]
    assert columns.context_len == [9, 40, 9]
    assert columns.out_of_vocab == [False, None, None]
    assert columns.greedy == [None, None, None]


def test_counts_of_a_batch_are_those_of_its_records() -> None:
    records = [
        batch(wall_s=5.0),
        batch(steps=5, topk=4, correct_drafts=[5, 6], wall_s=6.0),
        batch(correct_drafts=[3, 3], wall_s=7.0),
    ]
    together, singly = count(records), count([])
    for record in records:
        singly.add(record)
    assert together == singly
    assert together.outcomes == {(3, 2): 1, (3, 0): 1, (5, 5): 1, (3, 3): 2}
    assert together.topk == {1: 4, 4: 1}
    assert together.impossible == 1
    assert together.by_request["a"] == {(3, 2): 1, (5, 5): 1, (3, 3): 1}
    assert (together.first_wall_s, together.last_wall_s) == (5.0, 7.0)


def test_refusals_are_kept_unless_left_out(tmp_path: Path) -> None:
    why = Refusals(rids=["a"], rounds=[4], positions=[2], ranks=[5], target_argmax_matches=[False])
    samples.write(tmp_path, [batch(), why])
    assert read(tmp_path).processes[0].of(Refusals) == [why]
    assert read(tmp_path, leave_out=[Refusals]).processes[0].of(Refusals) == []
