"""Ranks of refused drafts, joined to captured rounds from the trace beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
import torch
from test_captured_requests import info, prefill, rounds

from sglang_eagle3_probe.capture.layout import piece_name
from sglang_eagle3_probe.capture.writing import write_piece
from sglang_eagle3_probe.offline.captured import CapturedRequest, read_requests
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestStart

PROCESS = "host-a-4711-tp0"
NUMBERS = [0, 1, 2, 3]
ACCEPTED = [[0, 1, -1, -1], [0, -1, -1, -1], [0, 1, 2, 3], [0, 1, 2, -1]]
"""Correct drafts 1, 0, 3 (nothing refused), 2."""


def digest(request: str) -> str:
    return hashlib.blake2b(request.encode(), digest_size=6).hexdigest()


def start(request: str = "r") -> RequestStart:
    return RequestStart(
        rid=digest(request),
        prompt_tokens=3,
        cached_tokens=0,
        chunked_prefill=False,
        temperature=0.0,
        greedy=True,
        grammar=False,
    )


def told(*entries: tuple[int, int, int | None], request: str = "r") -> Refusals:
    """Of (round, position, rank)s."""
    count = len(entries)
    return Refusals(
        rids=[digest(request)] * count,
        rounds=[e[0] for e in entries],
        positions=[e[1] for e in entries],
        ranks=[e[2] for e in entries],
        target_argmax_matches=[False] * count,
        unexpanded=[False] * count,
    )


def trace(folder: Path, *records: msgspec.Struct, pid: int = 4711) -> None:
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    (folder / f"probe-scheduler-tp0-pid{pid}-part0.jsonl").write_bytes(lines)


def captured(folder: Path, *, numbered: bool = True, ended_alone: bool = False) -> Path:
    place = folder / "captures"
    place.mkdir()
    tensors = rounds(
        [3, 5, 6, 10],
        ACCEPTED,
        [[13, 14, 90, 91], [15, 92, 93, 94], [16, 17, 18, 19], [20, 21, 22, 95]],
        [15, 16, 20, 23],
    )
    if numbered:
        tensors["round_numbers"] = torch.tensor(NUMBERS)
    pieces = [
        (info("prefill", 0), prefill(0, [10, 11, 12], prompt_ids=[10, 11, 12], next_id=[13])),
        (info("rounds", 1, last=not ended_alone, first_position=3), tensors),
    ]
    if ended_alone:
        nothing = {name: value[:0].clone() for name, value in tensors.items()}
        del nothing["round_numbers"]
        pieces.append((info("rounds", 2, last=True, first_position=13), nothing))
    for number, (description, its) in enumerate(pieces):
        write_piece(place / piece_name(0, number, PROCESS), description, its)
    return folder


def only(folder: Path) -> CapturedRequest:
    [request] = read_requests(folder)
    assert request.ranks is not None
    return request


def test_ranks_stand_beside_their_rounds(tmp_path: Path) -> None:
    captured(tmp_path)
    trace(tmp_path, start(), told((0, 1, 4), (1, 0, None)), told((3, 2, 2)))
    request = only(tmp_path)
    assert request.rounds["ranks"].tolist() == [4, -1, -1, 2]
    assert request.ranks is not None
    assert (request.ranks.refused, request.ranks.told, request.ranks.known) == (3, 3, 2)
    assert request.ranks.why == ""
    # The folder of the captures alone leads to the same trace.
    assert only(tmp_path / "captures").rounds["ranks"].tolist() == [4, -1, -1, 2]


def test_rounds_that_were_not_looked_at_are_counted(tmp_path: Path) -> None:
    captured(tmp_path)
    trace(tmp_path, start(), told((3, 2, 7)))
    request = only(tmp_path)
    assert request.rounds["ranks"].tolist() == [-1, -1, -1, 7]
    assert request.ranks is not None
    assert (request.ranks.refused, request.ranks.told, request.ranks.known) == (3, 1, 1)
    assert "looks at some rounds only" in request.ranks.why


def test_the_last_piece_may_only_say_that_the_request_ended(tmp_path: Path) -> None:
    captured(tmp_path, ended_alone=True)
    trace(tmp_path, start(), told((0, 1, 4)))
    assert only(tmp_path).rounds["ranks"].tolist() == [4, -1, -1, -1]


@pytest.mark.parametrize(
    ("records", "pid", "says"),
    [
        ([], 0, "not beside"),
        # Another process of the same folder says nothing of these requests.
        ([start(), told((0, 1, 4))], 4712, "not beside"),
        ([start(), told((0, 1, 4)), start(), told((1, 0, 9))], 4711, "several requests"),
        ([start(), told((0, 2, 4))], 4711, "looks at some rounds only"),
        ([start("s"), told((0, 1, 4), request="s")], 4711, "looks at some rounds only"),
    ],
)
def test_what_cannot_be_joined_stays_unknown(
    records: list[msgspec.Struct], pid: int, says: str, tmp_path: Path
) -> None:
    captured(tmp_path)
    if pid:
        trace(tmp_path, *records, pid=pid)
    request = only(tmp_path)
    assert request.rounds["ranks"].tolist() == [-1] * 4
    assert request.ranks is not None
    assert (request.ranks.refused, request.ranks.told) == (3, 0)
    assert says in request.ranks.why


def test_rounds_without_numbers(tmp_path: Path) -> None:
    captured(tmp_path, numbered=False)
    trace(tmp_path, start(), told((0, 1, 4)))
    request = only(tmp_path)
    assert request.rounds["ranks"].tolist() == [-1] * 4
    assert request.ranks is not None
    assert "does not number" in request.ranks.why


def test_a_damaged_trace_costs_its_lines_only(tmp_path: Path) -> None:
    captured(tmp_path)
    trace(tmp_path, start(), told((0, 1, 4)))
    [file] = tmp_path.glob("probe-*.jsonl")
    file.write_bytes(b'{"type":"refusals","rids":\n' + file.read_bytes() + b'{"type":"refu')
    assert only(tmp_path).rounds["ranks"].tolist() == [4, -1, -1, -1]
