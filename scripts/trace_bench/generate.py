"""A trace of any size, the same bytes for the same arguments: lines as the recorder writes them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from unit.trace import samples

from sglang_eagle3_probe.trace.acceptance_records import (
    PhaseTime,
    PhaseTimes,
    Refusals,
    RequestEnd,
    RequestStart,
)
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Footer, Losses, Progress, Ranks

START_S = 1_764_000_000.0
ROUND_S = 0.021
STEPS = 3
CHANCES = (0.76, 0.74, 0.72)
"""Conditional acceptance per draft position."""
PROGRESS_EVERY, TIMES_EVERY, WINDOW_EVERY, REFUSALS_EVERY = 240, 480, 5000, 50
"""Verify rounds between records of these kinds."""


@dataclass
class Life:
    """One request that is being served."""

    rid: str
    context: int
    left: int
    rounds: int = 0
    correct: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * (STEPS + 1))
    emitted: int = 0


class Rank:
    """Lines of one data-parallel rank. Mean batch size 1.3."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.random = random.Random(f"rank {rank} of {ranks}")
        self.rank = rank
        self.seq = -1
        self.now_s = START_S
        self.header = samples.header(
            ranks=Ranks(tp_rank=0, tp_size=1, dp_rank=rank, dp_size=ranks, pp_size=1),
            pid=1000 + rank,
            wall_s=START_S,
        )

    def stamp(self, record: Record) -> bytes:
        self.seq += 1
        record.seq, record.wall_s = self.seq, self.now_s
        record.monotonic_s = self.now_s - START_S + 1000.0
        return msgspec.json.encode(record) + b"\n"

    def lines(self, rounds: int) -> Iterator[bytes]:
        """Wiring, then verify rounds with everything that is written between them, and a footer."""
        for record in samples.clean(0):
            yield self.stamp(record)
        alive: list[Life] = []
        for number in range(rounds):
            while not alive or (len(alive) < 4 and self.random.random() < 0.006):
                alive.append(self.begin())
                yield self.stamp(self.start_of(alive[-1]))
            yield self.verify_round(alive)
            yield from self.between(number, alive)
            for life in [one for one in alive if one.left <= 0]:
                alive.remove(life)
                yield self.stamp(self.end_of(life))
        yield self.stamp(
            Footer(records_written=self.seq + 1, bytes_written=0, losses=Losses(), reason="made up")
        )

    def begin(self) -> Life:
        size = self.random.randrange
        return Life(f"{size(1 << 48):012x}", 40 + size(2000), 60 + size(440))

    def start_of(self, life: Life) -> Record:
        return RequestStart(
            rid=life.rid,
            prompt_tokens=life.context,
            cached_tokens=life.context // 2,
            chunked_prefill=False,
            temperature=0.0,
            greedy=True,
            grammar=False,
        )

    def end_of(self, life: Life) -> Record:
        return RequestEnd(
            rid=life.rid,
            reason="stop",
            output_tokens=life.emitted,
            verify_rounds=life.rounds,
            correct_drafts=life.correct,
            histogram=life.histogram,
        )

    def verify_round(self, alive: list[Life]) -> bytes:
        self.seq += 1
        self.now_s += ROUND_S
        chance = self.random.random
        rids, rounds, contexts, corrects, unknown = [], [], [], [], []
        for life in alive:
            correct = 0
            while correct < STEPS and chance() < CHANCES[correct]:
                correct += 1
            rids.append(f'"{life.rid}"')
            rounds.append(str(life.rounds))
            contexts.append(str(life.context))
            corrects.append(str(correct))
            unknown.append("true" if chance() < 0.04 else "false")
            life.rounds += 1
            life.correct += correct
            life.histogram[correct] += 1
            life.context += correct + 1
            life.emitted += correct + 1
            life.left -= correct + 1
        return (
            f'{{"type":"verify_round","seq":{self.seq},"monotonic_s":'
            f'{self.now_s - START_S + 1000.0:.9f},"wall_s":{self.now_s:.6f},"steps":{STEPS},'
            f'"topk":1,"proposed_drafts":{STEPS},"rids":[{",".join(rids)}],"rounds":'
            f'[{",".join(rounds)}],"context_lens":[{",".join(contexts)}],"correct_drafts":'
            f'[{",".join(corrects)}],"not_counted":[],"out_of_vocab":[{",".join(unknown)}],'
            f'"greedy":[{",".join(["true"] * len(alive))}]}}\n'
        ).encode()

    def between(self, number: int, alive: list[Life]) -> Iterator[bytes]:
        if number % PROGRESS_EVERY == 0:
            yield self.stamp(Progress(records_written=self.seq, bytes_written=0, losses=Losses()))
        if number % REFUSALS_EVERY == 0:
            yield self.stamp(
                Refusals(
                    rids=[life.rid for life in alive],
                    rounds=[life.rounds - 1 for life in alive],
                    positions=[0] * len(alive),
                    ranks=[3] * len(alive),
                    target_argmax_matches=[False] * len(alive),
                )
            )
        if number % TIMES_EVERY == 0:
            yield self.stamp(_times(len(alive)))
        if number % WINDOW_EVERY == 0:
            for site in samples.SITES:
                yield self.stamp(samples.slot_stats(site, number // WINDOW_EVERY))


def _times(batch_size: int) -> Record:
    times = {"count": 100, "mean_ms": 10.0, "least_ms": 9.0, "median_ms": 9.9, "greatest_ms": 14.0}
    phases = [
        PhaseTime(phase=phase, batch_size=batch_size, **times)  # type: ignore[arg-type]
        for phase in ("verify", "draft", "draft_extend")
    ]
    return PhaseTimes(clock="device", steps=STEPS, topk=1, draft_tokens=STEPS + 1, phases=phases)


def write_rank(directory: Path, rank: int, ranks: int, rounds: int, part_bytes: int) -> int:
    """One rank's parts. Returns bytes written."""
    maker = Rank(rank, ranks)
    lines = maker.lines(rounds)
    total, part, more = 0, 0, True
    while more:
        header = msgspec.structs.replace(maker.header, part=part, wall_s=maker.now_s)
        out = io.BytesIO()
        out.write(msgspec.json.encode(header) + b"\n")
        more = False
        for line in lines:
            out.write(line)
            if out.tell() >= part_bytes:
                more = True
                break
        name = f"probe-scheduler-tp0-dp{rank}-pid{1000 + rank}-part{part}.jsonl"
        (directory / name).write_bytes(out.getbuffer())
        total += out.tell()
        part += 1
    return total


def write(directory: Path, *, rounds: int, ranks: int, part_mb: int = 64, workers: int = 2) -> int:
    """``rounds`` verify rounds over ``ranks`` processes. Returns bytes written."""
    directory.mkdir(parents=True)
    with ProcessPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(write_rank, directory, rank, ranks, rounds // ranks, part_mb << 20)
            for rank in range(ranks)
        ]
        return sum(job.result() for job in jobs)
