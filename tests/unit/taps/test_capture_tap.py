"""The way of a request's states from the worker's calls to files: losses, ends, retractions."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.device.boundary_rows import BoundaryRows
from sglang_eagle3_probe.device.capture_arena import CaptureArena
from sglang_eagle3_probe.host.guard import Guard
from sglang_eagle3_probe.host.session import CapturePlan
from sglang_eagle3_probe.offline.captured import CapturedRequest, read_piece, read_requests
from sglang_eagle3_probe.settings import Settings
from sglang_eagle3_probe.taps.capture import CaptureTap
from sglang_eagle3_probe.taps.capture_choice import Chosen, RequestChoice
from sglang_eagle3_probe.taps.capture_facts import CaptureFacts
from sglang_eagle3_probe.taps.capture_thread import CaptureThread, PrefillJob, RoundJob
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.records import Ranks

sys.path.insert(0, str(Path(__file__).parent))
from test_phase_times import Mode, Site
from test_refusals_tap import call

H, STEPS, NODES, VOCAB = 4, 2, 3, 12
WIDTH = 3 * H


class FakeSession:
    def __init__(self, place: Path, rank: int, **variables: Any) -> None:
        self.settings = Settings(dir=str(place), level="capture", **variables)
        self.target_logits: set[Any] = {"target"}
        self.plans = {"target": CapturePlan((0, 3, 6), H, "eagle_config")}
        self.ranks = SimpleNamespace(tp_rank=rank, tp_size=2, dp_rank=None)
        self.server_args = SimpleNamespace(model_path="t", speculative_draft_model_path="d")
        self.layer_ids = SimpleNamespace(num_layers=8, model_class="Target")
        self.draft = SimpleNamespace(model_class="Draft")
        self.release = "0.5.23"
        self.records: list[Any] = []
        self.said: list[str] = []
        self.losses: Counter[str] = Counter()
        self.guard = SimpleNamespace(site=lambda name: Site(name))
        self.recorder = SimpleNamespace(count_capture_loss=self._count)

    def _count(self, reason: str) -> None:
        self.losses[reason] += 1

    def emit(self, record: Any) -> None:
        self.records.append(record)

    def say(self, message: str, *args: Any) -> None:
        self.said.append(message % args)

    warn = say

    def rid_digest(self, rid: Any) -> str:
        return f"d-{rid}"


@dataclass
class Request:
    rid: str
    origin_input_ids: list[int]
    output_ids: list[int] = field(default_factory=list)
    spec_verify_ct: int = 0
    is_retracted: bool = False
    ended: bool = False
    finished_output: bool = False
    finished_reason: Any = None
    sampling_params: Any = field(default_factory=lambda: SimpleNamespace(top_k=1, temperature=1.0))

    def finished(self) -> bool:
        return self.ended


@dataclass
class Result:
    logits_output: Any
    next_token_ids: Any
    accept_lens: Any


class Server:
    """Calls the tap as the V2 worker does, on the CPU. States tell request and position."""

    def __init__(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, *, rank: int = 0, **variables: Any
    ) -> None:
        self.session = FakeSession(place, rank, **variables)
        self.place = place
        self.held: list[Any] | None = None
        # Jobs are done on this thread, so that the test need not wait.
        monkeypatch.setattr(CaptureThread, "put", self._put)
        self.tap = CaptureTap(self.session)  # type: ignore[arg-type]
        pool = SimpleNamespace(req_to_token=torch.zeros(8, 1))
        model = SimpleNamespace(config=SimpleNamespace(vocab_size=VOCAB))
        self.worker = SimpleNamespace(
            draft_runner=SimpleNamespace(req_to_token_pool=pool),
            hot_token_id=None,
            device="cpu",
            topk=1,
            speculative_num_steps=STEPS,
            speculative_num_draft_tokens=NODES,
            target_worker=SimpleNamespace(model_runner=SimpleNamespace(model=model)),
        )
        self.run(self.tap.built, call(self.worker), None)

    def _put(self, job: Any) -> None:
        if self.held is not None:
            self.held.append(job)
            return
        thread, arena = self.tap._thread, self.tap._arena
        assert thread is not None
        assert arena is not None
        thread._do(job)
        if isinstance(job, PrefillJob | RoundJob):
            arena.release(job.parcel)

    def run(self, tap: Any, mine: Any, result: Any) -> None:
        tap.run(lambda _call: result, mine)

    def states(self, positions: list[int]) -> torch.Tensor:
        return torch.tensor(positions, dtype=torch.float32)[:, None].expand(-1, WIDTH).contiguous()

    def prefill(self, requests: list[Request], pieces: list[tuple[int, int]]) -> None:
        """pieces: per request (first position, rows)."""
        positions = [p for first, rows in pieces for p in range(first, first + rows)]
        batch = SimpleNamespace(
            reqs=requests,
            extend_lens=[rows for _, rows in pieces],
            prefix_lens=[first for first, _ in pieces],
            input_ids=torch.tensor(positions) + 1,
            forward_mode=Mode("EXTEND"),
        )
        mine = call(
            batch=batch,
            target_hidden_states=self.states(positions),
            next_token_ids=torch.full((len(requests),), 9),
        )
        self.run(self.tap.prefill, mine, None)

    def verify(self, requests: list[Request], correct: int) -> Result:
        """One round; each request's drafts are 1, 2, ... and ``correct`` of them are right."""
        roots = [len(r.origin_input_ids) + len(r.output_ids) - 1 for r in requests]
        positions = [root + node for root in roots for node in range(NODES)]
        drafts = torch.tensor([[9, 1, 2]] * len(requests)).flatten()
        predict = torch.tensor([[1, 2, 0][:correct] + [9] * (NODES - correct)] * len(requests))
        info = SimpleNamespace(
            draft_token=drafts,
            positions=torch.tensor(positions),
            spec_steps=STEPS,
            draft_token_num=NODES,
            topk=1,
        )
        batch = SimpleNamespace(reqs=requests, spec_info=info, forward_mode=Mode("DECODE"))
        output = SimpleNamespace(
            hidden_states=self.states(positions),
            next_token_logits=torch.eye(VOCAB)[torch.tensor([[1, 2, 3]] * len(requests)).flatten()],
        )
        result = Result(output, predict.flatten(), torch.full((len(requests),), correct + 1))

        def work(_call: Any) -> Result:
            self.run(self.tap.target, call(), SimpleNamespace(logits_output=output))
            return result

        self.tap.verify.run(work, call(batch=batch))
        return result

    def resolve(self, requests: list[Request], result: Result, correct: int) -> None:
        for request in requests:
            if not (request.is_retracted or request.finished()):
                request.spec_verify_ct += 1
        mine = call(result=result, batch=SimpleNamespace(reqs=requests))
        self.run(self.tap.resolve, mine, None)
        for request in requests:
            if not (request.is_retracted or request.finished()):
                request.output_ids += [*[1, 2, 0][:correct], 9]

    def round(self, requests: list[Request], correct: int) -> None:
        self.resolve(requests, self.verify(requests, correct), correct)

    def end(self, requests: list[Request]) -> None:
        for request in requests:
            request.ended = True
        self.run(self.tap.end, call(reqs=requests), None)
        for request in requests:
            request.finished_output = True

    def captured(self) -> list[CapturedRequest]:
        return list(read_requests(self.place))

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.session.records if isinstance(record, kind)]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(tmp_path, monkeypatch)


def whole_at_its_positions(request: CapturedRequest) -> bool:
    known = request.aux_known.nonzero()[:, 0]
    return torch.equal(request.aux[known, 0], known.to(torch.float32))


def test_a_request_from_prompt_to_end(server: Server) -> None:
    one, two = Request("a", [10] * 5), Request("b", [11] * 3)
    server.prefill([one, two], [(0, 5), (0, 3)])
    for request in (one, two):
        request.output_ids.append(9)
    server.round([one, two], 2)
    server.round([one, two], 0)
    server.end([one])
    server.round([two], 1)
    server.end([two])
    first, second = server.captured()
    assert (first.info.request, second.info.request) == ("a", "b")
    assert first.token_ids.tolist() == [10] * 5 + [9, 1, 2, 9, 9]
    assert second.token_ids.tolist() == [11] * 3 + [9, 1, 2, 9, 9, 1, 9]
    for request in (first, second):
        assert request.complete
        assert whole_at_its_positions(request)
        assert request.lost == ()
    last = read_piece(second.paths[-1]).info
    assert (last.last, last.output_tokens) == (True, 7)
    assert [record.rounds for record in server.of(Capture)] == [2, 3]
    assert server.of(Capture)[1].pieces == 2
    assert len(server.of(CapturePiece)) == 4


def test_the_overlap_schedules_round_after_the_end_is_not_written(server: Server) -> None:
    request = Request("a", [10] * 4)
    server.prefill([request], [(0, 4)])
    request.output_ids.append(9)
    result = server.verify([request], 1)
    late = server.verify([request], 2)
    server.resolve([request], result, 1)
    server.end([request])
    server.resolve([request], late, 2)
    [captured] = server.captured()
    assert captured.rounds["bonus_ids"].tolist() == [9]
    assert server.tap._arena is not None
    # Everything was given back: the arena takes its whole size again.
    assert server.tap._arena.reserve({"a": (torch.uint8, (server.tap._arena.nbytes,))})


def test_a_retracted_request_goes_on_with_another_prefill(server: Server) -> None:
    request = Request("a", [10] * 3)
    server.prefill([request], [(0, 3)])
    request.output_ids.append(9)
    server.round([request], 1)
    lost = server.verify([request], 2)
    request.is_retracted = True
    server.resolve([request], lost, 2)
    request.is_retracted = False
    server.prefill([request], [(0, 6)])
    request.output_ids.append(9)
    server.round([request], 0)
    server.end([request])
    [captured] = server.captured()
    assert captured.token_ids.tolist() == [10] * 3 + [9, 1, 9, 9, 9]
    assert captured.complete
    assert captured.rounds["round_numbers"].tolist() == [0, 1]
    assert [read_piece(path).info.kind for path in captured.paths] == [
        "prefill",
        "rounds",
        "prefill",
        "rounds",
    ]


def test_chunks_and_a_cached_prefix(server: Server) -> None:
    request = Request("a", list(range(100, 112)))
    server.prefill([request], [(4, 4)])
    server.prefill([request], [(8, 4)])
    server.end([request])
    [captured] = server.captured()
    assert captured.token_ids.tolist() == [*range(100, 112), 9]
    assert captured.info.cached_tokens == 4
    [hole] = captured.holes
    assert (hole.start, hole.stop) == (0, 4)
    pieces = [read_piece(path) for path in captured.paths]
    assert [piece.info.more_chunks for piece in pieces] == [True, False, False]
    assert ["prompt_ids" in piece.tensors for piece in pieces] == [True, False, False]
    assert pieces[-1].info.last
    assert pieces[1].tensors["draft_input_ids"].tolist() == [9, 10, 11, 12]


def test_a_prompt_that_does_not_fit_leaves_named_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, capture_buffer_mb=1)
    request = Request("a", [10] * 40_000)
    server.held = []
    server.prefill([request], [(0, 40_000)])
    waiting, server.held = server.held, None
    for job in waiting:
        server._put(job)
    server.end([request])
    [captured] = server.captured()
    assert not captured.complete
    assert whole_at_its_positions(captured)
    missing = 40_000 - int(captured.aux_known.sum())
    assert 0 < missing < 40_000
    assert any("did not fit into the buffer" in text for text in captured.lost)
    assert server.of(Capture)[0].lost == {"buffer": missing}
    assert sum("CAPTURE_BUFFER_MB" in line for line in server.session.said) == 1


def test_nothing_is_written_past_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, capture_mb=1)
    for number in range(3):
        request = Request(f"r{number}", [10] * 12_000)
        server.prefill([request], [(0, 12_000)])
        server.end([request])
    files = list((tmp_path / "captures").iterdir())
    assert sum(path.stat().st_size for path in files) <= 1_000_000
    assert server.session.losses["budget"] >= 1
    assert sum("which is what they may" in line for line in server.session.said) == 1
    # The third one was not even begun.
    assert [record.request for record in server.of(Capture)] == [0, 1]


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    server = Server(tmp_path / "file", monkeypatch)
    request = Request("a", [10] * 3)
    server.prefill([request], [(0, 3)])
    server.end([request])
    assert server.session.losses == {"write": 2}
    assert server.of(Capture)[0].lost == {"write": 2}
    assert sum("cannot be written" in line and "Fix" in line for line in server.session.said) == 1


def test_other_ranks_write_digests_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in (0, 1):
        place = tmp_path / str(rank)
        server = Server(place, monkeypatch, rank=rank)
        request = Request("a", [10] * 3)
        server.prefill([request], [(0, 3)])
        server.end([request])
        found.append([(p.piece, p.digests) for p in server.of(CapturePiece)])
        assert (place / "captures").exists() == (rank == 0)
        assert bool(server.of(CapturePiece)[0].file) == (rank == 0)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("ranks", "dp_attention", "writes"),
    [
        (Ranks(), False, True),
        (Ranks(tp_rank=0, tp_size=4, dp_size=1), False, True),
        (Ranks(tp_rank=3, tp_size=4, dp_size=1), False, False),
        # Replicas: each has ranks of its own.
        (Ranks(tp_rank=0, tp_size=2, dp_rank=1, dp_size=2), False, True),
        (Ranks(tp_rank=1, tp_size=2, dp_rank=1, dp_size=2), False, False),
        # The groups share the tensor-parallel ranks.
        (Ranks(tp_rank=1, tp_size=4, dp_rank=0, dp_size=2), True, False),
        (Ranks(tp_rank=2, tp_size=4, dp_rank=1, dp_size=2), True, True),
        (Ranks(tp_rank=3, tp_size=4, dp_rank=1, dp_size=2), True, False),
    ],
)
def test_one_rank_of_those_that_serve_the_same_requests_writes(
    ranks: Ranks, dp_attention: bool, writes: bool
) -> None:
    arguments = SimpleNamespace(enable_dp_attention=dp_attention)
    session: Any = SimpleNamespace(ranks=ranks, server_args=arguments)
    assert CaptureFacts(session, None).writes_files == writes


def test_the_v1_worker_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path, monkeypatch)
    tap = CaptureTap(server.session)  # type: ignore[arg-type]
    server.run(tap.built, call(SimpleNamespace()), None)
    assert server.session.losses["v1_worker"] == 1
    assert "V1 worker" in server.session.said[-1]
    server.run(tap.prefill, call(batch=None, target_hidden_states=torch.zeros(1, 1)), None)


def test_states_of_other_shapes_are_told(server: Server) -> None:
    request = Request("a", [10] * 4)
    batch = SimpleNamespace(
        reqs=[request],
        extend_lens=[4],
        prefix_lens=[0],
        input_ids=torch.arange(4),
        forward_mode=Mode("EXTEND"),
    )
    # As with CaptureHiddenMode.LAST: one row a request.
    mine = call(batch=batch, target_hidden_states=self_made(1), next_token_ids=torch.tensor([9]))
    server.run(server.tap.prefill, mine, None)
    request.output_ids.append(9)
    server.round([request], 1)
    server.end([request])
    [captured] = server.captured()
    assert server.of(Capture)[0].lost == {"shape": 4}
    assert "other shapes than expected" in captured.lost[0]
    assert not captured.complete


def self_made(rows: int) -> torch.Tensor:
    return torch.zeros(rows, WIDTH)


def test_choice_of_requests() -> None:
    choice = RequestChoice(first=2, every=3, all_layers=1)
    chosen = [choice.decide(f"r{number}") for number in range(9)]
    assert [c is not None for c in chosen] == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    assert [c.number for c in chosen if c is not None] == [0, 1, 2, 3]
    assert [c.all_layers for c in chosen if c is not None] == [True, False, False, False]
    assert choice.decide("r0") is chosen[0]
    assert choice.wants_all_layers
    choice.forget("r0")
    assert not choice.wants_all_layers
    assert choice.decide("HEALTH_CHECK_1") is None


def test_choice_of_none() -> None:
    choice = RequestChoice(first=0, every=0, all_layers=0)
    assert [choice.decide(str(number)) for number in range(300)] == [None] * 300
    assert not choice.wants_all_layers


def test_layers_that_were_not_seen_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, all_layers=1)
    request = Request("a", [10] * 3)
    server.prefill([request], [(0, 3)])
    request.output_ids.append(9)
    for _ in range(3):
        server.round([request], 1)
    server.end([request])
    [captured] = server.captured()
    assert captured.boundary_states is None
    assert [text.split(":")[0] for text in captured.lost] == [
        "positions 0 to 2 have no boundaries",
        "some verify rounds have no boundaries",
    ]
    assert server.of(Capture)[0].lost == {"layers": 6}
    assert sum("lacks some" in line for line in server.session.said) == 1


def test_layers_are_kept_for_the_rows_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, monkeypatch, all_layers=1)
    model = torch.nn.Module()
    model.model = torch.nn.Module()
    model.model.layers = torch.nn.ModuleList([Layer(), Layer(), Layer()])
    model.model.norm = Norm()
    server.tap.layers.watch(model)
    positions = torch.arange(5, dtype=torch.float32)[:, None].expand(-1, H).contiguous()
    monkeypatch.setattr(
        "sglang_eagle3_probe.taps.capture_layers.BoundaryRows",
        lambda _nbytes, *rest: BoundaryRows(3 * 5 * H * 4, *rest),
    )
    # Each layer adds nothing, so that every boundary is what entered: the positions.
    hidden, residual = positions, None
    for layer in model.model.layers:
        hidden, residual = layer(None, hidden, None, residual)
    model.model.norm(hidden, residual)
    server.session.plans["target"] = CapturePlan((0, 1, 2), H, "eagle_config")
    request = Request("a", [10] * 5)
    server.prefill([request], [(0, 5)])
    server.end([request])
    [captured] = server.captured()
    assert captured.complete
    assert captured.boundaries_known.tolist()[:5] == [True] * 3 + [False] * 2
    assert captured.boundary_states is not None
    assert captured.boundary_states[:3, 3, 0].tolist() == [0.0, 1.0, 2.0]
    assert captured.final_norm is not None
    assert captured.final_norm[:3, 0].tolist() == [0.0, 2.0, 4.0]
    assert captured.lost == (
        "positions 3 to 4 have no boundaries: only the first 3 rows of a forward are kept",
    )


class Layer(torch.nn.Module):
    def forward(self, positions: Any, hidden_states: Any, forward_batch: Any, residual: Any) -> Any:
        if residual is None:
            return torch.zeros_like(hidden_states), hidden_states
        return torch.zeros_like(hidden_states), residual + hidden_states


class Norm(torch.nn.Module):
    def forward(self, x: Any, residual: Any = None) -> Any:
        return 2 * (x + residual), residual


def test_a_writer_that_raises_gives_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[Any] = []
    session = FakeSession(tmp_path, 0)
    session.guard = Guard(2, faults.append)  # type: ignore[assignment]
    arena = CaptureArena(4096, "cpu")

    def broken(*_: Any) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(CaptureThread, "_do", broken)
    thread = CaptureThread(session, arena, None)  # type: ignore[arg-type]
    info = PieceInfo(
        kind="prefill", request="a", piece=0, boundaries=[0], hidden_width=H, dtype="float32"
    )
    for _ in range(5):
        parcel = arena.reserve({"aux": (torch.float32, (4, H))})
        assert parcel is not None
        arena.send([parcel])
        thread.put(PrefillJob(Chosen("a", 0, False), info, parcel, [1], 0, 1))
    deadline = time.monotonic() + 10
    while arena.reserve({"all": (torch.uint8, (arena.nbytes,))}) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # Switched off after the second one, and still giving back.
    assert [fault.disabled for fault in faults] == [False, True]
