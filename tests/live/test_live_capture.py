"""Level ``capture`` on the rig, against what SGLang returns and what transformers computes.

Under CUDA graphs the same copies are recorded in graphs or made after a replay;
``scripts/gpu_check capture`` checks that on a GPU.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import NEW_TOKENS, Models
from probed import Probed, only, probed_pair, rid_digest, rid_of, tokens
from rig.reference import boundaries
from rig.server import Generation
from trained_files import Scene

from sglang_eagle3_probe.cli.main import main
from sglang_eagle3_probe.offline.captured import (
    CapturedRequest,
    capture_files,
    read_piece,
    read_requests,
)
from sglang_eagle3_probe.trace.acceptance_records import Refusals
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.records import Fault

LONG = 150
"""Tokens of a prompt that takes three chunks."""
CHUNK = 64
WITH_LAYERS = 2


@pytest.fixture(scope="module")
def long_prompts(prompts: list[list[int]]) -> list[list[int]]:
    """Two held-out prompts that go on with another's tokens, so that they take several chunks."""
    return [
        (prompts[0] + prompts[1] + prompts[2])[:LONG],
        (prompts[3] + prompts[4] + prompts[5])[:LONG],
    ]


@pytest.fixture(scope="module")
def served(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    with probed_pair(
        models,
        tmp_path_factory.mktemp("capture"),
        variables={"level": "capture", "capture_first": "11", "capture_every": "2"},
        extra_args=[
            "--enable-return-hidden-states",
            "--probe-all-layers",
            str(WITH_LAYERS),
            "--chunked-prefill-size",
            str(CHUNK),
        ],
    ) as run:
        yield run


@pytest.fixture(scope="module")
def long_answers(served: Probed, long_prompts: list[list[int]]) -> list[Generation]:
    """The first requests of the server: those with all layers."""
    return served.server.generate(
        long_prompts, max_new_tokens=NEW_TOKENS, return_hidden_states=True
    )


@pytest.fixture(scope="module")
def answers(
    served: Probed, long_answers: list[Generation], prompts: list[list[int]]
) -> list[Generation]:
    served.server.flush_cache()
    return served.server.generate(prompts, max_new_tokens=NEW_TOKENS, return_hidden_states=True)


@pytest.fixture(scope="module")
def cached_answer(
    served: Probed, answers: list[Generation], prompts: list[list[int]]
) -> Generation:
    [answer] = served.server.generate([prompts[0] + [5, 6, 7]], max_new_tokens=16)
    return answer


def captured(run: Probed, wanted: list[Generation]) -> dict[str, CapturedRequest]:
    """Request id -> capture, once these requests are on the disk."""
    run.captured(wanted)
    return {request.info.request: request for request in read_requests(run.traces)}


def returned_rows(answer: Generation) -> torch.Tensor:
    """The aux states that SGLang returned, in the order of positions: prompt, then answer."""
    pieces = [torch.tensor(x) for x in answer.meta_info["hidden_states"]]
    width = pieces[0].shape[-1]
    return torch.cat([piece.reshape(-1, width) for piece in pieces])


def agrees(
    request: CapturedRequest, prompt: list[int], answer: Generation, *, returned_from: int = 0
) -> None:
    """Tokens, rows, and counts of a whole capture against the answer.

    Args:
        returned_from: position of the first returned row: of a prompt in chunks SGLang returns the
            last chunk only.
    """
    assert request.lost == ()
    assert request.complete
    assert request.info.prompt_tokens == len(prompt)
    ids = request.token_ids.tolist()
    assert tuple(ids[: len(prompt) + len(answer.output_ids)]) == (*prompt, *answer.output_ids)
    rows = returned_rows(answer)
    end = len(prompt) + len(answer.output_ids) - 1
    assert len(rows) == end - returned_from
    assert torch.equal(request.aux[returned_from:end], rows)
    accepted = (request.rounds["accepted_nodes"] >= 0).sum(dim=1) - 1
    assert len(accepted) == answer.meta_info["spec_verify_ct"]
    assert int(accepted.sum()) == answer.meta_info["spec_num_correct_drafts"]
    assert request.rounds["round_numbers"].tolist() == list(range(len(accepted)))


def test_tokens_equal_plain_decoding(
    answers: list[Generation], plain: list[tuple[int, ...]]
) -> None:
    assert tokens(answers) == plain


def test_captures_equal_what_sglang_returns(
    served: Probed, answers: list[Generation], prompts: list[list[int]]
) -> None:
    found = captured(served, answers)
    for prompt, answer in zip(prompts, answers, strict=True):
        agrees(found[answer.meta_info["id"]], prompt, answer)


def test_chunked_prompts_make_several_pieces(
    served: Probed, long_answers: list[Generation], long_prompts: list[list[int]]
) -> None:
    found = captured(served, long_answers)
    for prompt, answer in zip(long_prompts, long_answers, strict=True):
        request = found[answer.meta_info["id"]]
        pieces = [read_piece(path).info for path in request.paths]
        assert [piece.more_chunks for piece in pieces[:2]] == [True, True]
        last = max(piece.first_position for piece in pieces if piece.kind == "prefill")
        agrees(request, prompt, answer, returned_from=last)
        assert request.pieces >= 3
        files = [path for path in request.paths if path.exists()]
        assert [path.name.rsplit("-", 1)[1] for path in files] == [
            f"{number:04d}.safetensors" for number in range(len(files))
        ]


def test_all_boundaries_equal_those_of_transformers(
    served: Probed, models: Models, long_answers: list[Generation]
) -> None:
    found = captured(served, long_answers)
    for answer in long_answers:
        request = found[answer.meta_info["id"]]
        states, norm = request.boundary_states, request.final_norm
        assert states is not None
        assert norm is not None
        known = request.boundaries_known
        assert torch.equal(known, request.aux_known)
        count = int(known.sum())
        assert known[:count].all()
        expected, expected_norm = boundaries(models["deepseek"], request.token_ids[:count].tolist())
        assert states.shape[1] == len(expected)
        for boundary, rows in enumerate(expected):
            assert torch.allclose(states[:count, boundary], rows, rtol=1e-3, atol=2e-3), boundary
        assert torch.allclose(norm[:count], expected_norm, rtol=1e-3, atol=2e-3)
        # Neighbours are told apart: the next boundary is not within the same rounding.
        assert not torch.allclose(states[:count, 4], expected[5], rtol=1e-3, atol=2e-3)
        # And the aux slots are the same rows, bit for bit.
        width = request.info.hidden_width
        for slot, boundary in enumerate(request.info.boundaries):
            part = request.aux[:count, slot * width : (slot + 1) * width]
            assert torch.equal(part, states[:count, boundary])
    others = [
        r for r in found.values() if r.info.request not in {a.meta_info["id"] for a in long_answers}
    ]
    assert all(request.boundary_states is None for request in others)


def test_the_drafts_steps_are_in_it(served: Probed, answers: list[Generation]) -> None:
    found = captured(served, answers)
    for answer in answers:
        rounds = found[answer.meta_info["id"]].rounds
        assert torch.equal(rounds["step_ids"][:, :, 0], rounds["node_ids"][:, 1:])
        hidden = rounds["step_hidden"]
        assert hidden.shape[1:3] == (3, 1)
        assert float(hidden.abs().amax(dim=-1).min()) > 0
        assert not torch.equal(hidden[:, 0], hidden[:, 1])
        # Greedy: what was accepted is the argmax of the node before, and so is the bonus token.
        accepted = rounds["accepted_nodes"]
        for row, path in enumerate(accepted.tolist()):
            nodes = [node for node in path if node >= 0]
            following = [int(rounds["node_ids"][row, node]) for node in nodes[1:]]
            following.append(int(rounds["bonus_ids"][row]))
            assert following == [int(rounds["target_ids"][row, node]) for node in nodes]


def test_a_cached_prefix_is_a_named_hole(
    served: Probed, cached_answer: Generation, prompts: list[list[int]]
) -> None:
    assert cached_answer.cached_tokens > 0
    request = captured(served, [cached_answer])[cached_answer.meta_info["id"]]
    assert request.info.cached_tokens == cached_answer.cached_tokens
    [hole] = request.holes
    assert (hole.start, hole.stop) == (0, cached_answer.cached_tokens)
    assert "prefix cache" in hole.why
    prompt = prompts[0] + [5, 6, 7]
    wanted = (*prompt, *cached_answer.output_ids)
    assert tuple(request.token_ids.tolist()[: len(wanted)]) == wanted


def test_after_the_first_ones_every_second_request(
    served: Probed, cached_answer: Generation, prompts: list[list[int]]
) -> None:
    later = [served.server.generate([prompts[1]], max_new_tokens=8)[0] for _ in range(4)]
    found = captured(served, [later[1], later[3]])
    assert [answer.meta_info["id"] in found for answer in later] == [False, True, False, True]


def test_records_files_and_words(served: Probed, cached_answer: Generation) -> None:
    trace = served.trace()
    assert only(trace, Fault) == []
    records = only(trace, Capture)
    folder = served.traces / "captures"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = capture_files(served.traces)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert sum(record.bytes for record in records) == sum(path.stat().st_size for path in files)
    assert {record.folder for record in records} == {str(folder)}
    assert {piece.file for piece in only(trace, CapturePiece)} == {path.name for path in files}
    assert trace.processes[0].losses.captures == {}
    # The last piece of each request, and only that one, says that it is the last.
    for request in read_requests(served.traces):
        assert request.pieces == next(
            r.pieces for r in records if r.rid == rid_digest(request.info.request)
        )


def test_rounds_can_be_joined_to_the_trace(served: Probed, answers: list[Generation]) -> None:
    found = captured(served, answers)
    trace = served.rounds_match(answers)
    correct = {
        (rid, number): drafts
        for record in trace.processes[0].verify_rounds()
        for rid, number, drafts in zip(
            record.rids, record.rounds, record.correct_drafts, strict=True
        )
    }
    for answer in answers:
        rounds = found[answer.meta_info["id"]].rounds
        rid = rid_of(answer)
        accepted = (rounds["accepted_nodes"] >= 0).sum(dim=1) - 1
        for number, drafts in zip(rounds["round_numbers"].tolist(), accepted.tolist(), strict=True):
            assert correct[rid, number] == drafts
    assert only(trace, Refusals)


def test_trees_on_two_ranks(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    with probed_pair(
        models,
        tmp_path,
        topk=4,
        num_draft_tokens=8,
        tp=2,
        variables={"level": "capture", "all_layers": "1", "capture_buffer_mb": "64"},
        extra_args=["--enable-return-hidden-states"],
    ) as run:
        [first] = run.server.generate([prompts[0]], NEW_TOKENS, return_hidden_states=True)
        answers = run.server.generate(prompts[1:], NEW_TOKENS, return_hidden_states=True)
        assert tokens([first, *answers]) == plain
        found = captured(run, [first, *answers])

        def both(trace: Any) -> bool:
            return len(trace.processes) == 2 and all(
                len(list(p.of(Capture))) == len(prompts) for p in trace.processes
            )

        ranks = run.trace(both).processes
        assert [f for p in ranks for f in p.of(Fault)] == []
    for prompt, answer in zip(prompts, [first, *answers], strict=True):
        request = found[answer.meta_info["id"]]
        agrees(request, prompt, answer)
        rounds = request.rounds
        parents, ids = rounds["node_parents"], rounds["node_ids"]
        assert (parents[:, 0] == -1).all()
        assert (parents[:, 1:] >= 0).all()
        # A node lies one position behind its parent, and siblings differ.
        places = rounds["node_positions"]
        assert torch.equal(places[:, 1:], places.gather(1, parents[:, 1:]) + 1)
        assert bool((parents[:, 2:] != parents[:, 1:-1]).any())
        # The first step's candidates are the root's children that were kept, and more.
        for row in range(len(ids)):
            children = set(ids[row][parents[row] == 0].tolist())
            assert children <= set(rounds["step_ids"][row, 0].tolist())
        assert (rounds["step_scores"][:, 0, :-1] >= rounds["step_scores"][:, 0, 1:]).all()
    whole = found[first.meta_info["id"]]
    assert whole.boundary_states is not None
    width = whole.info.hidden_width
    for slot, boundary in enumerate(whole.info.boundaries):
        part = whole.aux[whole.aux_known, slot * width : (slot + 1) * width]
        assert torch.equal(part, whole.boundary_states[whole.aux_known, boundary])
    digests = [
        {(p.request, p.piece): p.digests for p in process.of(CapturePiece)} for process in ranks
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) >= 2 * len(prompts)
    written = {
        process.header.ranks.tp_rank: {p.file for p in process.of(CapturePiece)}
        for process in ranks
    }  # type: ignore[union-attr]
    assert written[1] == {""}
    assert "" not in written[0]


def test_faults_change_no_token(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    sites = {"capture_prefill", "capture_rounds", "capture_draft", "capture_layers", "capture_end"}
    with probed_pair(
        models,
        tmp_path,
        variables={"level": "capture", "all_layers": "1", "fail_site": ",".join(sites)},
    ) as run:
        assert tokens(run.server.generate(prompts, max_new_tokens=NEW_TOKENS)) == plain
        run.trace(lambda t: {f.site for f in only(t, Fault)} == sites)
        assert only(run.trace(), Capture) == []
        assert not (run.traces / "captures").exists()


def test_losses_are_counted_and_said(
    models: Models, prompts: list[list[int]], plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """A buffer that holds little, and a budget of one megabyte."""
    with probed_pair(
        models,
        tmp_path,
        variables={"level": "capture", "capture_buffer_mb": "1", "capture_mb": "1"},
    ) as run:
        answers = run.server.generate(prompts, max_new_tokens=NEW_TOKENS)
        assert tokens(answers) == plain
        # Losses are written with the next progress record, within seconds.
        trace = run.trace(lambda t: "budget" in t.processes[0].losses.captures)
        files = capture_files(run.traces)
        assert 0 < sum(path.stat().st_size for path in files) <= 1_000_000
        assert run.log.count("which is what they may") == 1
        assert "SGLANG_EAGLE3_PROBE_CAPTURE_MB" in run.log
        again = run.server.generate(prompts[:1], max_new_tokens=16)
        assert tokens(again) == [plain[0][:16]]
        assert capture_files(run.traces) == files
        assert any("budget" in record.lost for record in only(trace, Capture))
        assert only(trace, Fault) == []


def test_compare_tells_the_trained_states_from_their_neighbours(
    served: Probed,
    models: Models,
    long_answers: list[Generation],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = captured(served, long_answers)
    request = found[long_answers[0].meta_info["id"]]
    count = int(request.aux_known.sum())
    scene = Scene(models["deepseek"], request.token_ids[:count].tolist())
    trained = (0, 3, 6)
    assert tuple(request.info.boundaries) == trained
    for name, slots, code in (
        ("right", trained, 0),
        ("late", (1, 4, 7), 1),
        ("order", (6, 0, 3), 1),
    ):
        states = scene.specforge(tmp_path / name, scene.aux(slots))
        one = tmp_path / f"capture-{name}"
        one.mkdir()
        for path in request.paths:
            (one / path.name).symlink_to(path)
        assert main(["compare", str(one), "--train", str(states), "--json"]) == code
        value = json.loads(capsys.readouterr().out)
        assert value["trained_boundaries"] == list(slots)
        assert value["tokens_compared"] == count
        assert [f["name"] for f in value["findings"]] == {
            "right": [],
            "late": ["one_early"],
            "order": ["permuted"],
        }[name]
