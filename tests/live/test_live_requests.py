"""Requests from their first verify round to their end, against what SGLang answers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import NEW_TOKENS, Models
from probed import Probed, only, probed, probed_pair, rid_of, tokens
from rig.server import Generation
from safetensors.torch import load_file

from sglang_eagle3_probe.trace.acceptance_records import PhaseTimes, RequestEnd, RequestStart
from sglang_eagle3_probe.trace.reader import ProcessTrace
from sglang_eagle3_probe.trace.records import Fault


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    with probed_pair(
        models,
        tmp_path_factory.mktemp("requests"),
        variables={"level": "stats"},  # the lowest at which phases are timed
        extra_args=["--chunked-prefill-size", "64"],
    ) as run:
        yield run


def ended(run: Probed, answers: Sequence[Generation], processes: int = 1) -> list[ProcessTrace]:
    """Processes of the trace, once each has the end of every answer."""
    rids = {rid_of(answer) for answer in answers}

    def complete(trace: Any) -> bool:
        return len(trace.processes) == processes and all(
            rids <= {r.rid for r in p.of(RequestEnd)} for p in trace.processes
        )

    return list(run.trace(complete).processes)


def check(process: ProcessTrace, answers: Sequence[Generation]) -> dict[str, RequestEnd]:
    """Ends, starts and rounds of a process equal SGLang's own numbers, request by request."""
    ends = Counter(record.rid for record in process.of(RequestEnd))
    by_rid = {record.rid: record for record in process.of(RequestEnd)}
    starts = {record.rid: record for record in process.of(RequestStart)}
    for answer in answers:
        rid, told = rid_of(answer), answer.meta_info
        end = by_rid[rid]
        assert ends[rid] == 1
        assert end.reason == told["finish_reason"]["type"]
        assert end.output_tokens == told["completion_tokens"] == len(answer.output_ids)
        assert end.verify_rounds == told.get("spec_verify_ct", 0)
        rounds = [
            (number, correct)
            for record in process.verify_rounds()
            for mine, number, correct in zip(
                record.rids, record.rounds, record.correct_drafts, strict=True
            )
            if mine == rid
        ]
        assert [number for number, _ in rounds] == list(range(end.verify_rounds))
        if not rounds:
            continue
        assert end.correct_drafts == told["spec_num_correct_drafts"]
        assert end.histogram == told["spec_correct_drafts_histogram"]
        counted = Counter(correct for _, correct in rounds)
        assert end.histogram == [counted[k] for k in range(len(end.histogram))]
        start = starts[rid]
        assert start.prompt_tokens == told["prompt_tokens"]
        assert start.cached_tokens == told["cached_tokens"]
        assert (start.grammar, start.greedy, start.temperature) == (False, True, 0.0)
    return by_rid


def test_ends_equal_the_answers(
    served: Probed, prompts: list[list[int]], plain: list[tuple[int, ...]]
) -> None:
    answers = served.server.generate(prompts, max_new_tokens=NEW_TOKENS)
    assert tokens(answers) == plain
    [process] = ended(served, answers)
    check(process, answers)


def test_a_stop_in_mid_round_cuts(
    served: Probed, prompts: list[list[int]], plain: list[tuple[int, ...]]
) -> None:
    stops = [tokens_[30] for tokens_ in plain]
    answers = [
        served.server.generate([prompt], max_new_tokens=NEW_TOKENS, stop_token_ids=[stop])[0]
        for prompt, stop in zip(prompts, stops, strict=True)
    ]
    [process] = ended(served, answers)
    ends = check(process, answers)
    mine = [ends[rid_of(answer)] for answer in answers]
    assert {end.reason for end in mine} == {"stop"}
    assert sum(end.cut_tokens for end in mine) > 0
    for end in mine:
        assert end.correct_drafts is not None
        # One token from the prefill, then correct drafts and a bonus token a round.
        emitted = 1 + end.correct_drafts + end.verify_rounds
        assert emitted == end.output_tokens + end.cut_tokens


def test_an_abort_ends_too(served: Probed, prompts: list[list[int]]) -> None:
    answers: list[Generation] = []

    def ask() -> None:
        answers.extend(served.server.generate(prompts[:2], max_new_tokens=1500, ignore_eos=True))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(2.0)
    served.server.abort_all()
    thread.join(60)
    assert [a.meta_info["finish_reason"]["type"] for a in answers] == ["abort"] * 2
    [process] = ended(served, answers)
    ends = check(process, answers)
    assert all(ends[rid_of(answer)].verify_rounds > 3 for answer in answers)


def test_one_token_needs_no_round(served: Probed, prompts: list[list[int]]) -> None:
    answers = served.server.generate(prompts[:1], max_new_tokens=1)
    [process] = ended(served, answers)
    assert check(process, answers)[rid_of(answers[0])].verify_rounds == 0
    assert rid_of(answers[0]) not in {r.rid for r in process.of(RequestStart)}


def test_a_long_prompt_comes_in_pieces_and_then_from_the_cache(
    served: Probed, prompts: list[list[int]]
) -> None:
    served.server.flush_cache()
    long = [token for prompt in prompts for token in prompt][:150]
    first = served.server.generate([long], max_new_tokens=8)
    again = served.server.generate([long], max_new_tokens=8)
    [process] = ended(served, [*first, *again])
    check(process, [*first, *again])
    starts = {record.rid: record for record in process.of(RequestStart)}
    assert starts[rid_of(first[0])].chunked_prefill is True
    assert starts[rid_of(first[0])].cached_tokens == 0
    assert starts[rid_of(again[0])].chunked_prefill is False
    assert (starts[rid_of(again[0])].cached_tokens or 0) > 64


def test_a_sampled_request_says_so(served: Probed, prompts: list[list[int]]) -> None:
    answers = served.server.generate(prompts[:1], max_new_tokens=16, temperature=0.7)
    [process] = ended(served, answers)
    [start] = [r for r in process.of(RequestStart) if r.rid == rid_of(answers[0])]
    assert (start.greedy, start.temperature) == (False, 0.7)
    greedy = {
        (rid == start.rid, by_argmax)
        for record in process.verify_rounds()
        for rid, by_argmax in zip(record.rids, record.greedy, strict=True)
    }
    assert greedy == {(True, False), (False, True)}


def test_tokens_that_the_draft_cannot_propose(
    served: Probed, models: Models, prompts: list[list[int]]
) -> None:
    answers = served.server.generate(prompts, max_new_tokens=NEW_TOKENS)
    [process] = ended(served, answers)
    d2t = load_file(models["deepseek-draft-embed"] / "model.safetensors")["d2t"].tolist()
    vocabulary = {place + offset for place, offset in enumerate(d2t)}
    by_rid = {rid_of(answer): answer for answer in answers}
    seen: Counter[bool] = Counter()
    for record in process.verify_rounds():
        assert len(record.out_of_vocab) == len(record.rids)
        for rid, context, correct, lacks in zip(
            record.rids,
            record.context_lens,
            record.correct_drafts,
            record.out_of_vocab,
            strict=True,
        ):
            answer = by_rid.get(rid)
            if answer is None:
                continue
            place = context - answer.meta_info["prompt_tokens"] + correct
            if place < len(answer.output_ids):
                assert lacks == (answer.output_ids[place] not in vocabulary)
                seen[bool(lacks)] += 1
    assert seen[True] > 0
    assert seen[False] > 0


def test_every_unit_of_work_is_timed(served: Probed, prompts: list[list[int]]) -> None:
    def verified(process: ProcessTrace) -> tuple[Counter[int], Counter[int]]:
        timed: Counter[int] = Counter()
        for record in process.of(PhaseTimes):
            timed.update({p.batch_size: p.count for p in record.phases if p.phase == "verify"})
        rounds = Counter(len(r.rids) + len(r.not_counted) for r in process.verify_rounds())
        return timed, rounds

    served.server.generate(prompts, max_new_tokens=NEW_TOKENS)
    time.sleep(1.1)
    # The round after the last end is only told when the next unit begins.
    served.server.generate(prompts[:1], max_new_tokens=1)

    def complete(trace: Any) -> bool:
        timed, rounds = verified(trace.processes[0])
        return timed == rounds

    [process] = served.trace(complete).processes
    records = list(process.of(PhaseTimes))
    assert {(r.clock, r.overlapped, r.not_timed) for r in records} == {("host", False, 0)}
    assert {(r.steps, r.topk, r.draft_tokens) for r in records if r.steps} == {(3, 1, 4)}
    times = [p for record in records for p in record.phases]
    assert {p.phase for p in times} == {"prefill", "draft", "verify", "draft_extend"}
    assert all(0 < p.least_ms <= p.median_ms <= p.greatest_ms for p in times)
    assert all(p.least_ms <= p.mean_ms <= p.greatest_ms for p in times)
    # Two draft forwards of one layer take less than a verify forward of ten.
    assert min(p.median_ms for p in times if p.phase == "draft") < max(
        p.median_ms for p in times if p.phase == "verify"
    )


def test_plain_decoding_is_timed_to_compare_with(
    models: Models, prompts: list[list[int]], tmp_path: Path
) -> None:
    with probed(models["deepseek"], None, tmp_path, variables={"level": "stats"}) as run:
        answers = run.server.generate(prompts[:2], max_new_tokens=48)
        assert all(len(answer.output_ids) == 48 for answer in answers)
        time.sleep(1.1)
        # What the last second had not told yet is told when the next unit begins.
        answers += run.server.generate(prompts[:1], max_new_tokens=1)

        def steps(trace: Any) -> int:
            return sum(
                p.count
                for process in trace.processes
                for record in process.of(PhaseTimes)
                for p in record.phases
                if p.phase == "decode"
            )

        trace = run.trace(lambda t: steps(t) >= 47)
        [process] = ended(run, answers)
        check(process, answers)
        assert {p.phase for r in process.of(PhaseTimes) for p in r.phases} == {"prefill", "decode"}
        assert only(trace, Fault) == []


def test_nothing_of_ours_failed(served: Probed) -> None:
    assert only(served.trace(), Fault) == []


def test_retracted_requests_on_two_ranks(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(
        models,
        tmp_path,
        tp=2,
        extra_env={"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "10"},
    ) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        processes = ended(run, answers, processes=2)
    for process in processes:
        ends = check(process, answers)
        assert sum(ends[rid_of(answer)].retractions for answer in answers) > 0
        assert list(process.of(Fault)) == []
