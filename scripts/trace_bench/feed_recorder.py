"""Feeds a recorder at a given rate from one thread, on one core.

Usage: feed_recorder.py DIR RECORDS_PER_S SECONDS. Prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from unit.trace import samples

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.recorder import Recorder

TURN_S = 0.001
MOST_BEHIND_S = 0.02


def record(number: int) -> VerifyRound:
    """One request in the batch: the most records for the least content."""
    return VerifyRound(
        steps=3,
        topk=1,
        proposed_drafts=3,
        rids=["0a1b2c3d4e5f"],
        rounds=[number],
        context_lens=[100 + 3 * number],
        correct_drafts=[number % 4],
        out_of_vocab=[False],
        greedy=[True],
    )


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Feed, close, and tell what came of it."""
    directory, rate, seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    recorder = Recorder(directory, "scheduler", samples.header, file_bytes=1 << 34)
    for number in range(2000):  # thread, file and code paths exist from here on
        recorder.emit(record(number))
    recorder.flush(10)
    memory, cpu = resident_mib(), time.process_time()
    sent, in_emit, longest_turn, start = 0, 0.0, 0.0, time.perf_counter()
    before = start
    while (now := time.perf_counter()) - start < seconds:
        longest_turn, before = max(longest_turn, now - before), now
        # A thread that was kept from running must not make up for it in one burst: no server does.
        due = min(int((now - start) * rate) - sent, int(rate * MOST_BEHIND_S))
        for number in range(sent, sent + due):
            recorder.emit(record(number))
        sent += due
        in_emit += time.perf_counter() - now
        time.sleep(TURN_S)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    recorder.close("bench", timeout_s=60)
    losses = recorder.losses()
    print(
        json.dumps(
            {
                "asked_per_s": rate,
                "sent": sent + 2000,
                "sent_per_s": round(sent / wall),
                "dropped": losses.dropped_records,
                "cpu_share": round(cpu / wall, 3),
                "make_and_emit_us": round(in_emit / max(1, sent) * 1e6, 2),
                "longest_turn_ms": round(longest_turn * 1e3, 1),
                "grown_mib": round(resident_mib() - memory, 1),
            }
        )
    )


main()
