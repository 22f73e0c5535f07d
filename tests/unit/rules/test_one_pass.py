"""Evidence gathered while the trace is read is that of reading its files again."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.trace import samples

from sglang_eagle3_probe.analysis.traffic_counts import LeadTraffic
from sglang_eagle3_probe.report import json_out
from sglang_eagle3_probe.report.verdict import build
from sglang_eagle3_probe.rules import evidence
from sglang_eagle3_probe.rules.evidence import read_evidence
from sglang_eagle3_probe.trace.acceptance_records import Refusals, RequestStart
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.record_base import Record
from sglang_eagle3_probe.trace.records import Ranks


def traffic(seed: int) -> list[Record]:
    """Rounds, each followed by why its draft was refused."""
    records: list[Record] = []
    for round_ in samples.rounds(300, seed=seed):
        if round_.rounds == [0]:
            records.append(
                RequestStart(
                    rid=round_.rids[0],
                    prompt_tokens=50,
                    cached_tokens=20,
                    chunked_prefill=False,
                    temperature=0.0,
                    greedy=True,
                    grammar=False,
                )
            )
        records.append(round_)
        if round_.correct_drafts[0] < round_.steps:
            records.append(
                Refusals(
                    rids=round_.rids,
                    rounds=round_.rounds,
                    positions=round_.correct_drafts,
                    ranks=[2 + seed],
                    target_argmax_matches=[False],
                )
            )
    return records


@pytest.mark.parametrize("lacking", [None, "tp0"])
def test_one_pass_or_two(tmp_path: Path, lacking: str | None) -> None:
    for dp in range(2):
        for tp in range(2):
            if lacking == f"tp{tp}":
                continue  # then another rank's rounds count, and are read again
            head = samples.header(ranks=Ranks(tp_rank=tp, tp_size=2, dp_rank=dp, dp_size=2))
            name = f"probe-scheduler-tp{tp}-dp{dp}-pid{10 * dp + tp}"
            samples.write(tmp_path, [*samples.clean(0), *traffic(dp)], head=head, name=name)
    once = read_evidence(tmp_path)
    assert all(Refusals not in process.records for process in once.processes)
    kinds = {type(fold) for process in once.processes for fold in process.folds}
    assert kinds == {LeadTraffic}
    expected = build(read(tmp_path))
    assert expected.evidence.understood.anatomy.joined > 100
    assert json_out.as_text(build(once)) == json_out.as_text(expected)
    assert json_out.as_text(build(once)) == json_out.as_text(expected)  # nothing was used up


def test_every_group_is_counted_in_the_first_pass_with_dp_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the groups share the tensor-parallel ranks: the second group has no rank 0."""
    for tp in range(4):
        head = samples.header(ranks=Ranks(tp_rank=tp, tp_size=4, dp_rank=tp // 2, dp_size=2))
        records = [*samples.clean(0), *traffic(tp // 2)]
        samples.write(tmp_path, records, head=head, name=f"probe-scheduler-tp{tp}-pid{tp}")
    expected = build(read(tmp_path))

    def again(_files: object) -> None:
        raise AssertionError("a trace is read a second time")

    monkeypatch.setattr(evidence, "read_traffic", again)
    once = build(read_evidence(tmp_path))
    assert json_out.as_text(once) == json_out.as_text(expected)
