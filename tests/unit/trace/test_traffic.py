"""The stream of traffic records: whole, in order, and deaf to damage."""

from __future__ import annotations

from pathlib import Path

from unit.trace import samples
from unit.trace.traffic_samples import clean_with, phase_times, served

from sglang_eagle3_probe.trace.acceptance_records import VerifyRound
from sglang_eagle3_probe.trace.records import Header, Seams
from sglang_eagle3_probe.trace.traffic import TRAFFIC_TYPES, read_traffic


def test_every_traffic_record_in_order(tmp_path: Path) -> None:
    made = [*served(causes=("ranked_2",)).records, phase_times()]
    path = samples.write(tmp_path, clean_with(made))
    assert list(read_traffic([path])) == made
    assert {type(r) for r in made} == set(TRAFFIC_TYPES)
    assert not {Header, Seams} & set(TRAFFIC_TYPES)


def test_parts_follow_each_other(tmp_path: Path) -> None:
    rounds = samples.rounds(40)
    parts = [
        samples.write(tmp_path, list(rounds[:30]), footer=False),
        samples.write(tmp_path, list(rounds[30:]), part=1),
    ]
    read = [r for r in read_traffic(parts) if isinstance(r, VerifyRound)]
    assert [r.context_lens for r in read] == [r.context_lens for r in rounds]


def test_damage_is_passed_over(tmp_path: Path) -> None:
    path = samples.write(tmp_path, list(samples.rounds(10)))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:40] + b"\n"
    lines[5] = b'{"type":"verify_round","steps":"three"}\n'
    lines[6] = b'{"type":"verify_round\xff"}\n'
    lines.append(lines[1][:50])
    path.write_bytes(b"".join(lines))
    assert len(list(read_traffic([path, tmp_path / "gone.jsonl"]))) == 7
