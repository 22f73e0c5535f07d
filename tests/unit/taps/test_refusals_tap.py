"""The way of a refusal from the worker's calls to a record, with results that are resolved late."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_eagle3_probe.device import refusals as logits_module
from sglang_eagle3_probe.host.call import Binder, Call
from sglang_eagle3_probe.taps import counting
from sglang_eagle3_probe.taps import refusals as module
from sglang_eagle3_probe.taps.refusals import RefusalsTap

sys.path.insert(0, str(Path(__file__).parent))
from test_phase_times import Mode, Site

TARGET, DRAFT, STEPS = 10, 6, 2
HOT = torch.tensor([0, 2, 3, 5, 7, 9])


class FakeSession:
    def __init__(self, every: int = 1) -> None:
        self.settings = SimpleNamespace(refusal_every=every)
        self.target_logits: set[Any] = {"target"}
        self.records: list[Any] = []
        self.lines: list[str] = []
        self.missed: Counter[str] = Counter()
        self.guard = SimpleNamespace(site=lambda name: Site(name))

    def emit(self, record: Any) -> None:
        self.records.append(record)

    def miss(self, kind: str, count: int = 1) -> None:
        self.missed[kind] += count

    def say(self, message: str, *args: Any) -> None:
        self.lines.append(message % args)

    def rid_digest(self, rid: Any) -> str:
        return f"d-{rid}"


@dataclass
class Request:
    rid: str
    req_pool_idx: int | None = None
    spec_verify_ct: int = 0
    is_retracted: bool = False
    ended: bool = False

    def finished(self) -> bool:
        return self.ended


@dataclass
class Result:
    accept_lens: Any
    next_token_ids: Any
    logits_output: Any


@dataclass
class Batch:
    reqs: list[Request]
    req_pool_indices: Any
    spec_info: Any = None
    forward_mode: Any = field(default_factory=lambda: Mode("DECODE"))


def call(instance: Any = None, **arguments: Any) -> Call:
    names = {name: place for place, name in enumerate(arguments)}
    return Call(Binder(names), print, instance, tuple(arguments.values()), {})


class Server:
    """Calls the tap as a V2 worker would, eagerly."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, every: int = 1, topk: int = 1, nodes: int = 3
    ) -> None:
        self.session = FakeSession(every)
        self.busy = False
        self.tap = RefusalsTap(self.session)  # type: ignore[arg-type]
        # Read on this thread, so that the test need not wait.
        monkeypatch.setattr(module.RefusalReader, "put", self._read)
        pool = SimpleNamespace(req_to_token=torch.zeros(8, 1))
        config = SimpleNamespace(config=SimpleNamespace(vocab_size=TARGET))
        self.worker = SimpleNamespace(
            draft_runner=SimpleNamespace(req_to_token_pool=pool),
            hot_token_id=HOT,
            topk=topk,
            speculative_num_steps=STEPS,
            speculative_num_draft_tokens=nodes,
            target_worker=SimpleNamespace(model_runner=SimpleNamespace(model=config)),
        )
        self.run(self.tap.built, call(self.worker), None)

    def _read(self, snapshot: Any, joins: Any) -> bool:
        assert self.tap._reader is not None
        if self.busy:
            return False
        self.session.records += list(self.tap._reader.read(snapshot, joins))
        return True

    def run(self, tap: Any, mine: Call, result: Any) -> None:
        tap.run(lambda _call: result, mine)

    def logits(self, values: Any, mode: str) -> Any:
        output = SimpleNamespace(next_token_logits=values)
        metadata = SimpleNamespace(forward_mode=Mode(mode))
        self.run(self.tap.logits, call("draft", logits_metadata=metadata), output)
        return output

    def extend(self, batch: Batch, logits: Any, tap: Any = None) -> None:
        """The worker's call runs the forward, then selects one row a request."""

        def work(_call: Call) -> None:
            output = self.logits(logits.repeat_interleave(3, 0), "EXTEND")
            output.next_token_logits = logits

        (tap or self.tap.extend).run(work, call(batch=batch))

    def prefill(self, batch: Batch, logits: Any) -> None:
        self.extend(batch, logits, self.tap.prefill)

    def verify(self, batch: Batch, steps: list[Any], accept: list[int], tokens: list[int]) -> Any:
        """Draft and verify; the target's token of each request stands at its last place."""
        self.run(self.tap.steps, call(self.worker), None)
        for logits in steps[1:]:
            self.logits(logits, "DECODE")
        nodes = STEPS + 1
        drafts = torch.zeros(len(batch.reqs), nodes, dtype=torch.int64)
        for place, logits in enumerate(steps):
            drafts[:, place + 1] = HOT[logits.argmax(-1)]
        predict = torch.zeros(len(batch.reqs), nodes, dtype=torch.int32)
        for row, (length, token) in enumerate(zip(accept, tokens, strict=True)):
            predict[row, length - 1] = token
        batch.spec_info = SimpleNamespace(
            draft_token=drafts.flatten(), draft_token_num=nodes, spec_steps=STEPS, topk=1
        )
        result = Result(
            torch.tensor(accept, dtype=torch.int32),
            predict.flatten(),
            SimpleNamespace(next_token_logits=torch.zeros(len(batch.reqs) * nodes, TARGET)),
        )
        self.run(self.tap.verify, call(self.worker, batch=batch), result)
        return result

    def resolve(self, batch: Batch, result: Any) -> None:
        for request in batch.reqs:
            if not (request.is_retracted or request.finished()):
                request.spec_verify_ct += 1
        self.run(self.tap.resolve, call(None, result=result, batch=batch), None)


def descending(*best_first: int) -> Any:
    """Draft logits in which the draft ids come in this order."""
    values = torch.zeros(DRAFT)
    for place, index in enumerate(best_first):
        values[index] = float(DRAFT - place)
    return values


ORDER = descending(0, 1, 2, 3, 4, 5)
BACKWARDS = descending(5, 4, 3, 2, 1, 0)


def listed(server: Server) -> list[tuple[str, int, int, int | None]]:
    return [
        row
        for record in server.session.records
        for row in zip(record.rids, record.rounds, record.positions, record.ranks, strict=True)
    ]


def test_rounds_are_joined_to_requests_though_batches_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset(range(1, 99)))
    server = Server(monkeypatch)
    a, b, c = Request("a"), Request("b"), Request("c")
    both = Batch([a, b], torch.tensor([3, 1]))
    server.extend(both, torch.stack([ORDER, BACKWARDS]))
    # b leaves, c comes: rows move, pool indices stay.
    alone = Batch([c], torch.tensor([5]))
    server.extend(alone, ORDER[None])
    mixed = Batch([c, a], torch.tensor([5, 3]))
    first = [torch.stack([ORDER, ORDER]), torch.stack([BACKWARDS, ORDER])]
    result = server.verify(mixed, first, [1, 2], [3, 2])
    server.extend(mixed, torch.stack([ORDER, BACKWARDS]))
    # Launched before the round above is resolved, as the overlap schedule does it.
    later = Batch([c, a], torch.tensor([5, 3]))
    second = [torch.stack([ORDER, BACKWARDS]), torch.stack([ORDER, ORDER])]
    next_result = server.verify(later, second, [1, 3], [1, 0])
    server.resolve(mixed, result)
    a.ended = True
    server.resolve(later, next_result)
    more = server.verify(Batch([c], torch.tensor([5])), [ORDER[None]] * 2, [2], [9])
    server.resolve(Batch([c], torch.tensor([5])), more)
    # Draft ids of the target's tokens: 3 is 2, 2 is 1, 1 has none, 9 is 5.
    assert listed(server) == [("d-c", 0, 0, 3), ("d-a", 0, 1, 2), ("d-c", 1, 0, None),
                              ("d-c", 2, 1, 6)]  # fmt: skip
    assert server.session.missed == {}


def test_requests_that_do_not_fit_are_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset(range(1, 99)))
    # Of 8 places 4 fit.
    monkeypatch.setattr(logits_module, "MAX_BYTES", 4 * 4 * DRAFT * STEPS)
    server = Server(monkeypatch)
    a, b = Request("a", 3), Request("b", 5)
    batch = Batch([a, b], torch.tensor([3, 5]))
    server.extend(batch, torch.stack([ORDER, ORDER]))
    result = server.verify(batch, [torch.stack([ORDER, ORDER])] * 2, [1, 1], [3, 3])
    server.resolve(batch, result)
    later = server.verify(batch, [torch.stack([ORDER, ORDER])] * 2, [1, 1], [3, 3])
    server.resolve(batch, later)
    assert listed(server)[:2] == [("d-a", 0, 0, 3), ("d-b", 0, 0, None)]
    assert server.session.missed == {"refusal_request": 2}
    said = [line for line in server.session.lines if "places for 8 requests" in line]
    assert len(said) == 1
    assert "draft logits of 4 fit" in said[0]
    assert "Fix: lower --max-running-requests" in said[0]


def test_a_v1_worker_is_left_alone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.tap = RefusalsTap(server.session)  # type: ignore[arg-type]
    server.run(server.tap.built, call(SimpleNamespace(hot_token_id=HOT)), None)
    server.logits(ORDER[None], "DECODE")
    assert len(server.session.lines) == 1
    assert "V1 worker is not looked at" in server.session.lines[0]


def test_logits_of_the_target_are_not_the_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    metadata = SimpleNamespace(forward_mode=Mode("DECODE"))
    output = SimpleNamespace(next_token_logits=torch.zeros(1, TARGET))
    server.run(server.tap.logits, call("target", logits_metadata=metadata), output)
    assert server.session.lines == []


def test_an_extend_that_was_not_seen_leaves_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset(range(1, 99)))
    server = Server(monkeypatch)
    a = Request("a")
    batch = Batch([a], torch.tensor([3]))
    server.extend(batch, ORDER[None])
    server.run(server.tap.extend, call(batch=batch), None)
    assert server.session.missed == {"refusal_extend": 1}
    assert "logits of a draft extend, None, are none" in server.session.lines[-1]
    # What is kept is of the extend before, so the submitted draft gives it away.
    result = server.verify(batch, [BACKWARDS[None], ORDER[None]], [1], [3])
    server.resolve(batch, result)
    server.resolve(batch, server.verify(batch, [ORDER[None]] * 2, [3], [0]))
    assert listed(server) == [("d-a", 0, 0, None)]


def test_a_busy_reader_gets_the_rounds_with_the_next_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset(range(1, 99)))
    server = Server(monkeypatch)
    a = Request("a")
    batch = Batch([a], torch.tensor([3]))
    for number in range(8):
        server.busy = number < 6
        server.extend(batch, ORDER[None])
        server.resolve(batch, server.verify(batch, [ORDER[None]] * 2, [1], [3]))
    assert listed(server) == [("d-a", number, 0, 3) for number in range(8)]
    assert server.session.missed == {}


def test_rounds_that_the_ring_overwrote_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset({4}))
    monkeypatch.setattr(module, "DRAIN_EVERY_ROUNDS", 300)
    server = Server(monkeypatch)
    a = Request("a")
    batch = Batch([a], torch.tensor([3]))
    for _ in range(305):
        server.extend(batch, ORDER[None])
        server.resolve(batch, server.verify(batch, [ORDER[None]] * 2, [1], [3]))
    rounds = [number for _, number, _, _ in listed(server)]
    assert len(rounds) + server.session.missed["refusal_round"] == 304
    assert rounds[-1] == 303
    assert server.session.missed == {"refusal_round": 304 - len(rounds)}
    assert len(rounds) > 200


def test_results_that_nobody_resolves_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    batch = Batch([Request("a")], torch.tensor([3]))
    server.extend(batch, ORDER[None])
    kept = [server.verify(batch, [ORDER[None]] * 2, [1], [3]) for _ in range(module.WAITING + 1)]
    assert len(kept) == module.WAITING + 1
    assert server.session.missed == {"refusal_round": module.WAITING}


def test_a_share_of_the_rounds_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset(range(1, 99)))
    server = Server(monkeypatch, every=3)
    a, b = Request("a"), Request("b")
    batch, looked = Batch([a, b], torch.tensor([3, 1])), []
    server.prefill(batch, torch.stack([ORDER, ORDER]))
    for _ in range(9):
        result = server.verify(batch, [torch.stack([ORDER, ORDER])] * 2, [1, 3], [3, 0])
        server.extend(batch, torch.stack([ORDER, ORDER]))
        server.resolve(batch, result)
        looked.append(server.tap.looked_at(result))
    assert looked == [0, 1, 0] * 3
    assert listed(server) == [("d-a", number, 0, 3) for number in (1, 4, 7)]
    assert server.tap.looked_at(object()) == 0


def test_logits_are_kept_for_the_rounds_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, every=3)
    batch = Batch([Request("a")], torch.tensor([3]))
    server.prefill(batch, ORDER[None])
    assert server.tap._kept is not None
    assert torch.equal(server.tap._kept.first[3], ORDER)
    changed = []
    for number in range(6):
        server.verify(batch, [ORDER[None]] * 2, [1], [3])
        server.extend(batch, torch.full((1, DRAFT), float(number)))
        changed.append(float(server.tap._kept.first[3, 0]) == number)
    # The extend after a round makes the first draft of the next one; rounds 1 and 4 are due.
    assert changed == [True, False, False, True, False, False]


def test_of_large_batches_every_other_request_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    requests = [Request(str(number)) for number in range(100)]
    batch = Batch(requests, torch.arange(100) % 8)
    server.prefill(batch, ORDER.expand(100, DRAFT).contiguous())
    result = server.verify(batch, [ORDER.expand(100, DRAFT)] * 2, [1] * 100, [3] * 100)
    server.resolve(batch, result)
    assert server.tap.looked_at(result) == 2


def test_a_tap_that_is_off_says_nothing_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, every=3)
    assert server.tap.looked_at(object()) is None
    batch = Batch([Request("a")], torch.tensor([3]))
    server.prefill(batch, ORDER[None])
    assert server.tap.looked_at(object()) == 0
    server.tap._site.enabled = False
    assert server.tap.looked_at(object()) is None


def grown(server: Server, beams: Any, parents: Any, submitted: Any) -> None:
    """The search of a round: one decode step, and what ``draft_forward`` returns."""

    def search(_call: Call) -> Any:
        server.logits(beams, "DECODE")
        return parents, submitted, None, None

    server.tap.steps.run(search, call(server.worker))


def test_a_tree_is_looked_at_beam_by_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DRAINS", frozenset(range(1, 99)))
    server = Server(monkeypatch, topk=2, nodes=4)
    a, b = Request("a"), Request("b")
    batch = Batch([a, b], torch.tensor([3, 1]))
    server.prefill(batch, torch.stack([ORDER, ORDER]))
    # Two beams a request: after draft id 0 the draft wants 5, 4, ... and after 1 it wants 0, 1, ...
    beams = torch.stack([BACKWARDS, ORDER] * 2)
    parents, submitted = torch.tensor([[-1, 0, 1]] * 2), torch.tensor([[0, 1, 2]] * 2)
    grown(server, beams, parents, submitted)
    drafts = torch.tensor([[8, 0, 2, 9]] * 2)
    batch.spec_info = SimpleNamespace(
        draft_token=drafts.flatten(), draft_token_num=4, spec_steps=STEPS, topk=2
    )
    # a goes down by 0, b by 2; then the target wants draft ids 4 (second) and 2 (third).
    predict = torch.tensor([[0, 7, 0, 0], [2, 3, 0, 0]], dtype=torch.int32)
    result = Result(
        torch.tensor([2, 2], dtype=torch.int32),
        predict.flatten(),
        SimpleNamespace(next_token_logits=torch.eye(8, TARGET)),
    )
    server.run(server.tap.verify, call(server.worker, batch=batch), result)
    server.resolve(batch, result)
    assert listed(server) == [("d-a", 0, 1, 2), ("d-b", 0, 1, 3)]
    assert server.session.missed == {}
    # Idle ranks search nothing; a search of another shape is not kept, and that is counted.
    grown(server, beams, None, None)
    assert server.session.missed == {}
    grown(server, beams, parents, submitted[:, :2])
    assert server.session.missed == {"refusal_tree": 1}


def test_by_default_one_round_in_five_is_looked_at_and_twenty_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(counting, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    tap = RefusalsTap(FakeSession(every=0))  # type: ignore[arg-type]

    def looked_at(rounds: int, round_s: float) -> list[int]:
        found = []
        for number in range(rounds):
            # The extend before a round and the round itself ask, and must hear the same.
            asked = [tap._is_turn(), tap._is_turn()]
            assert len(set(asked)) == 1
            found += [number] if asked[0] else []
            tap._rounds += 1
            now_s[0] += round_s
        return found

    assert looked_at(20, 0.02) == [2, 7, 12, 17]
    assert len(looked_at(1000, 0.003)) == 1000 // 20
