"""Traces of several ranks: what must agree, what is said once, what is added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unit.trace import samples
from unit.trace.samples import replace

from sglang_eagle3_probe.rules.base import Finding, Result
from sglang_eagle3_probe.rules.evidence import collect
from sglang_eagle3_probe.rules.registry import judge
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Ranks, Tensorprint


def findings(found: list[Result], code: str) -> list[Finding]:
    return [r for r in found if isinstance(r, Finding) and r.code == code]


def with_weights(**changes: Any) -> list[Record]:
    return replace(samples.clean(), samples.weights(**changes))


def with_map(**changes: Any) -> list[Record]:
    return replace(samples.clean(), samples.vocab_map(**changes))


def ranks(directory: Path, second: list[Record]) -> list[Result]:
    for rank, records in enumerate((samples.clean(), second)):
        head = samples.header(ranks=Ranks(tp_rank=rank, tp_size=2), pid=rank)
        name = f"probe-scheduler-tp{rank}-pid{rank}"
        samples.write(directory, records, head=head, name=name)
    return judge(collect(read(directory)))


def test_ranks_that_agree_and_ranks_that_do_not(tmp_path: Path) -> None:
    assert ranks(tmp_path / "same", samples.clean()) == []
    (finding,) = findings(ranks(tmp_path / "map", with_map(digest="other")), "E3P404")
    assert "vocabulary map" in finding.message
    head = Tensorprint(shape=[512, 192], dtype="bfloat16", digest="other rows")
    sharded = Tensorprint(shape=[96, 576], dtype="bfloat16", digest="other half")
    other = Tensorprint(shape=[192, 576], dtype="bfloat16", digest="other")
    assert ranks(tmp_path / "head", with_weights(digests={"lm_head": head})) == []
    assert ranks(tmp_path / "sharded", with_weights(digests={"fc": sharded})) == []
    assert findings(ranks(tmp_path / "fc", with_weights(digests={"fc": other})), "E3P404")


def test_the_same_finding_on_two_ranks_is_one_that_names_both(tmp_path: Path) -> None:
    for rank in range(2):
        head = samples.header(ranks=Ranks(tp_rank=rank, tp_size=2), pid=rank)
        name = f"probe-scheduler-tp{rank}-pid{rank}"
        samples.write(tmp_path, samples.owners_case(), head=head, name=name)
    evidence = collect(read(tmp_path))
    (finding,) = findings(judge(evidence), "E3P101")
    assert finding.ranks == ("scheduler tp0", "scheduler tp1")
    assert evidence.acceptance.rounds == 400  # both ranks saw the same rounds
    assert evidence.rounds_from == ["scheduler tp0"]


def test_data_parallel_groups_are_added(tmp_path: Path) -> None:
    for rank in range(2):
        head = samples.header(ranks=Ranks(tp_rank=0, dp_rank=rank, dp_size=2), pid=rank)
        name = f"probe-scheduler-dp{rank}-pid{rank}"
        samples.write(tmp_path, samples.clean(), head=head, name=name)
    assert collect(read(tmp_path)).acceptance.rounds == 800
