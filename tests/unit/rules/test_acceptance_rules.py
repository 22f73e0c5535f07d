"""Rules on acceptance: each fires on traffic made to trip it and is quiet on traffic just short of
that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.trace import samples
from unit.trace.traffic_samples import clean_with, phase_times, refusals, served, start, verify

from sglang_eagle3_probe.analysis.economics import Plain
from sglang_eagle3_probe.analysis.prediction import parse
from sglang_eagle3_probe.analysis.understanding import Given
from sglang_eagle3_probe.rules.base import Finding
from sglang_eagle3_probe.rules.evidence import collect
from sglang_eagle3_probe.rules.registry import judge
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Ranks

CODES = {
    *("E3P603", "E3P604", "E3P605", "E3P606", "E3P607", "E3P608", "E3P609"),
    *("E3P630", "E3P631", "E3P632", "E3P633"),
}
GOOD, WEAK = (0.76, 0.74, 0.72), (0.45, 0.4, 0.4)


def promise(*accuracy: float) -> Given:
    data = json.dumps({"accuracy": accuracy, "positions": 8000}).encode()
    return Given(predicted=parse(data, "trainer_accuracy.json"))


def found(directory: Path, given: Given | None = None) -> dict[str, list[Finding]]:
    """Findings of the rules tested here, by code."""
    result: dict[str, list[Finding]] = {}
    for item in judge(collect(read(directory), given)):
        if isinstance(item, Finding) and item.code in CODES:
            result.setdefault(item.code, []).append(item)
    return result


def judged(
    directory: Path, records: list[Record], given: Given | None = None
) -> dict[str, list[Finding]]:
    samples.write(directory, records)
    return found(directory, given)


def one(by_code: dict[str, list[Finding]], code: str) -> Finding:
    assert list(by_code) == [code]
    (finding,) = by_code[code]
    assert finding.evidence
    assert finding.fix
    assert not finding.message.endswith(".")
    return finding


def traffic(*parts: list[Record]) -> list[Record]:
    return clean_with([record for part in parts for record in part])


def test_good_traffic_is_quiet(tmp_path: Path) -> None:
    made = served(causes=("ranked_2", "ranked_3_4", "ranked_5_8", "ranked_more"), requests=24)
    times = phase_times(ms={"verify": 10.0, "draft": 4.0, "draft_extend": 2.0, "decode": 9.0})
    assert judged(tmp_path, traffic(made.records, [times]), promise(0.77, 0.75, 0.73)) == {}


@pytest.mark.parametrize(
    ("code", "severity", "measured", "says"),
    [
        ("E3P603", "warning", (0.45, 0.74, 0.72), "layer ids, fc, map or embedding"),
        ("E3P604", "warning", (0.76, 0.45, 0.72), "draft 1 (given the ones before)"),
        ("E3P604", "warning", (0.76, 0.74, 0.45), "draft 2 (given the ones before)"),
        ("E3P605", "note", (0.69, 0.67, 0.65), "a little worse"),
    ],
)
def test_gaps_to_training(
    tmp_path: Path, code: str, severity: str, measured: tuple[float, ...], says: str
) -> None:
    records = traffic(served(requests=40, rounds=80, chances=measured).records)
    finding = one(judged(tmp_path, records, promise(*GOOD)), code)
    assert finding.severity == severity
    assert says in finding.message
    assert finding.evidence[-1].what == "accept length"
    assert found(tmp_path) == {}  # without the trainer's numbers there is nothing to say


def test_a_gap_with_a_known_cause_names_it(tmp_path: Path) -> None:
    records = samples.owners_case(0) + served(requests=40, chances=(0.33, 0.25, 0.2)).records
    finding = one(judged(tmp_path, records, promise(*GOOD)), "E3P603")
    assert "as is to be expected with E3P101" in finding.message
    assert finding.fix.startswith("repair E3P101 first")


def test_sampled_traffic_is_said(tmp_path: Path) -> None:
    made = served(requests=40, causes=("sampling", "ranked_2"), chances=(0.45, 0.74, 0.72))
    for record in made.records:
        if hasattr(record, "correct_drafts") and hasattr(record, "rids"):
            record.greedy = [False] * len(record.rids)
    finding = one(judged(tmp_path, traffic(made.records), promise(*GOOD)), "E3P603")
    assert "100%" in str(finding.evidence[-1].value)


def test_draft_vocabulary(tmp_path: Path) -> None:
    many = served(requests=24, causes=("out_of_vocab", "ranked_2"))
    finding = one(judged(tmp_path / "a", traffic(many.records)), "E3P606")
    assert "of the rounds the draft stops at a token that its vocabulary lacks" in finding.message
    assert len(finding.evidence) == 3
    few = served(requests=24, causes=("out_of_vocab", *("ranked_2",) * 19))
    assert judged(tmp_path / "b", traffic(few.records)) == {}


def test_context_length(tmp_path: Path) -> None:
    short = served(requests=8, context=60, seed=1).records
    long = served(requests=8, context=6000, seed=2, chances=WEAK).records
    finding = one(judged(tmp_path / "a", traffic(short, long)), "E3P607")
    assert "4096 to 8191" in finding.message
    same = served(requests=8, context=6000, seed=2).records
    assert judged(tmp_path / "b", traffic(short, same)) == {}


def test_prefix_cache(tmp_path: Path) -> None:
    cold = served(requests=8, seed=1, cached_tokens=0).records
    warm = served(requests=8, seed=2, cached_tokens=96, chances=WEAK).records
    finding = one(judged(tmp_path / "a", traffic(cold, warm)), "E3P608")
    assert "over 75 % against nothing" in finding.message
    same = served(requests=8, seed=2, cached_tokens=96).records
    assert judged(tmp_path / "b", traffic(cold, same)) == {}
    assert judged(tmp_path / "c", traffic(warm)) == {}  # nothing to hold it against


def test_first_rounds(tmp_path: Path) -> None:
    made = served(requests=300, rounds=6)
    for record in made.records:
        if hasattr(record, "context_lens") and record.rounds == [0]:
            record.correct_drafts = [0]
    finding = one(judged(tmp_path / "a", traffic(made.records)), "E3P608")
    assert finding.message.startswith("first rounds of requests have an accept length of 1.00")
    assert judged(tmp_path / "b", traffic(served(requests=300, rounds=6).records)) == {}


def test_uptime(tmp_path: Path) -> None:
    early = served(requests=8, rounds=40, seed=1).records
    late = served(requests=8, rounds=40, seed=2, chances=WEAK).records
    for record in late:
        record.monotonic_s += 3600 if record.monotonic_s else 0
    finding = one(judged(tmp_path, traffic(early, late)), "E3P608")
    assert finding.message.startswith("later hours have an accept length")


def test_batch_size(tmp_path: Path) -> None:
    single = served(requests=8, seed=1).records
    many = served(requests=8, batch=4, seed=2, chances=WEAK).records
    finding = one(judged(tmp_path / "a", traffic(single, many)), "E3P609")
    assert "at batch size 1" in finding.message
    assert "at 3 to 4" in finding.message
    same = served(requests=8, batch=4, seed=2).records
    assert judged(tmp_path / "b", traffic(single, same)) == {}


def write_ranks(directory: Path, name: str, *traffics: list[Record], **shared: Any) -> None:
    for rank, records in enumerate(traffics):
        sizes: dict[str, Any] = {"tp_rank": 0, "tp_size": 1, "dp_rank": 0, "dp_size": 1}
        sizes |= {f"{name}_rank": rank, f"{name}_size": len(traffics)}
        samples.write(
            directory,
            clean_with(records),
            head=samples.header(ranks=Ranks(**sizes), pid=rank + 1),
            name=f"probe-scheduler-{name}{rank}-pid{rank + 1}",
        )


def test_ranks(tmp_path: Path) -> None:
    one_rank = served(requests=8, seed=1).records
    weak = served(requests=8, seed=2, chances=WEAK).records
    write_ranks(tmp_path / "dp", "dp", one_rank, weak)
    finding = one(found(tmp_path / "dp"), "E3P609")
    assert "dp1" in finding.message
    write_ranks(tmp_path / "tp", "tp", one_rank, weak)
    assert "tensor-parallel rank" in one(found(tmp_path / "tp"), "E3P609").message
    write_ranks(tmp_path / "same", "dp", one_rank, served(requests=8, seed=3).records)
    assert found(tmp_path / "same") == {}


def test_pruned(tmp_path: Path) -> None:
    many = served(requests=24, topk=4, causes=("pruned", "ranked_5_8"))
    finding = one(judged(tmp_path / "a", traffic(many.records)), "E3P630")
    assert finding.severity == "note"
    few = served(requests=24, topk=4, causes=("pruned", *("ranked_5_8",) * 9))
    assert judged(tmp_path / "b", traffic(few.records)) == {}


def test_unexpanded(tmp_path: Path) -> None:
    many = served(requests=24, topk=4, causes=("unexpanded", "ranked_5_8"))
    finding = one(judged(tmp_path / "a", traffic(many.records)), "E3P633")
    assert finding.severity == "note"
    assert "--speculative-eagle-topk" in finding.fix
    few = served(requests=24, topk=4, causes=("unexpanded", *("ranked_5_8",) * 9))
    assert judged(tmp_path / "b", traffic(few.records)) == {}


def test_speculation_that_does_not_pay(tmp_path: Path) -> None:
    made = served(requests=8, chances=WEAK).records
    ms = {"verify": 10.0, "draft": 6.0, "draft_extend": 3.0, "decode": 9.0}
    finding = one(judged(tmp_path / "a", traffic(made, [phase_times(ms=ms)])), "E3P631")
    assert "a round costs 2.11 plain steps" in finding.message
    assert "--speculative-num-steps 1" in finding.fix
    cheap = phase_times(ms={**ms, "draft": 1.0, "draft_extend": 0.5})
    assert judged(tmp_path / "b", traffic(made, [cheap])) == {}


def test_speculation_that_does_not_pay_by_a_speed_that_was_given(tmp_path: Path) -> None:
    records = traffic(served(requests=8, chances=WEAK, gap_ms=25.0).records)
    fast = Given(plain=Plain({0: 10.0}, "spacing", "100 tokens/s as given"))
    finding = one(judged(tmp_path, records, fast), "E3P631")
    assert "100 tokens/s as given" in [seen.where for seen in finding.evidence]
    assert found(tmp_path) == {}
    slow = Given(plain=Plain({0: 20.0}, "spacing", "50 tokens/s as given"))
    assert found(tmp_path, slow) == {}


def first_choices(refused: int, others: int) -> list[Record]:
    """Refusals of which some name the draft's first choice."""
    records: list[Record] = [start("a")]
    for number in range(refused + others):
        records += [
            verify([1], rids=["a"], rounds=[number], greedy=[True], out_of_vocab=[False]),
            refusals(("a", number, 1, 1 if number < refused else 2, False)),
            verify([3], rids=["b"], rounds=[number], greedy=[True], out_of_vocab=[False]),
        ]
    return records


def test_first_choice_refused(tmp_path: Path) -> None:
    finding = one(judged(tmp_path / "a", traffic(first_choices(40, 160))), "E3P632")
    assert "20% of the refusals" in finding.message
    assert judged(tmp_path / "b", traffic(first_choices(2, 198))) == {}
