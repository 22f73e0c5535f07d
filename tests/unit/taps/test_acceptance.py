"""Verify rounds from a V2 result and from a V1 result."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_eagle3_probe.host.call import Binder, Call
from sglang_eagle3_probe.taps.acceptance import AcceptanceTap
from sglang_eagle3_probe.taps.draft_vocabulary import DraftVocabulary
from sglang_eagle3_probe.trace.acceptance_records import RequestStart, VerifyRound

sys.path.insert(0, str(Path(__file__).parent))
from test_phase_times import Mode
from test_refusals_tap import FakeSession
from test_requests import request

HOT = torch.tensor([0, 2, 3, 5])


def call(instance: Any = None, **arguments: Any) -> Call:
    names = {name: place for place, name in enumerate(arguments)}
    return Call(Binder(names), print, instance, tuple(arguments.values()), {})


def taps(session: FakeSession, hot: Any = HOT) -> AcceptanceTap:
    vocabulary = DraftVocabulary(session)  # type: ignore[arg-type]
    vocabulary.tap.run(lambda _call: None, call(SimpleNamespace(hot_token_id=hot)))
    return AcceptanceTap(session, vocabulary)  # type: ignore[arg-type]


def active(rid: str, verified: int, **changes: Any) -> Any:
    values = {"rid": rid, "spec_verify_ct": verified, "is_retracted": False, **changes}
    mine = request(**values)
    mine.finished = lambda: False
    return mine


def two_rows(session: FakeSession, hot: Any = HOT, looked_at: Any = None) -> VerifyRound:
    result = SimpleNamespace(
        accept_lens=torch.tensor([2, 1, 3]),
        # The bonus tokens are 5, 9 and 4.
        next_token_ids=torch.tensor([2, 5, 9, 9, 0, 0, 3, 0, 4]),
        speculative_num_draft_tokens=3,
    )
    over = active("over", 4)
    over.finished = lambda: True
    sampled = SimpleNamespace(temperature=0.7, top_k=50)
    requests = [active("a", 1), over, active("b", 7, sampling_params=sampled)]
    batch = SimpleNamespace(reqs=requests)
    mine = taps(session, hot)
    mine.looked_at = looked_at
    mine.tap.run(lambda _call: None, call(result=result, batch=batch))
    [record] = [r for r in session.records if isinstance(r, VerifyRound)]
    return record


def test_v2() -> None:
    session = FakeSession()
    record = two_rows(session)
    assert record.rids == ["d-a", "d-b"]
    assert record.rounds == [0, 6]
    assert record.correct_drafts == [1, 2]
    assert record.not_counted == ["d-over"]
    # Rows of requests that are not counted still take their place among the tokens.
    assert record.out_of_vocab == [False, True]
    assert record.greedy == [True, False]
    assert [r.rid for r in session.records if isinstance(r, RequestStart)] == ["d-a"]


@pytest.mark.parametrize(
    ("apart", "looked_at"),
    [(None, []), (1, []), (0, [False, False]), (2, [True, True]), (3, [True, False])],
)
def test_which_rows_were_looked_at(apart: int | None, looked_at: list[bool]) -> None:
    session = FakeSession()
    record = two_rows(session, looked_at=lambda _result: apart)
    # The second of three rows is of a request that is not counted.
    assert record.looked_at == looked_at


def test_without_a_map_nothing_is_said_of_it() -> None:
    assert two_rows(FakeSession(), hot=None).out_of_vocab == [None, None]


def test_v1_reads_the_bonus_token_off_the_request() -> None:
    session = FakeSession()
    whole = active("a", 1, output_ids=[7])
    cut = active("b", 3, output_ids=[7])
    batch = SimpleNamespace(reqs=[whole, cut], forward_mode=Mode("DECODE"))
    worker = SimpleNamespace(speculative_num_draft_tokens=4, speculative_num_steps=3, topk=1)
    result = SimpleNamespace(num_correct_drafts_per_req_cpu=[2, 1])

    def work(_call: Call) -> Any:
        whole.output_ids += [2, 3, 4]
        cut.output_ids += [2]  # ended before its bonus token
        return result

    taps(session).v1.run(work, call(worker, batch=batch))
    [start, record] = session.records
    assert (start.rid, record.rids) == ("d-a", ["d-a", "d-b"])
    assert record.context_lens == [13, 13]
    assert record.out_of_vocab == [True, None]
    assert record.greedy == [True, True]
