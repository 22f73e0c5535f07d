"""Refusals: the twin by hand, the kernel against the twin, the buffers at their bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from sglang_eagle3_probe.device import refusals
from sglang_eagle3_probe.device.refusal_reference import describe
from sglang_eagle3_probe.device.refusals import (
    LAYOUT,
    NOT_SEEN,
    NOTHING_REFUSED,
    OUTSIDE,
    SEEN,
    UNEXPANDED,
    UNKNOWN,
    DraftLogits,
    Verified,
    inverse_map,
    record_refusals,
)
from sglang_eagle3_probe.device.ring import Ring

sys.path.insert(0, str(Path(__file__).parent))
from refusal_rounds import make_round, make_trees

ROOT = Path(__file__).resolve().parents[3]
HOT = torch.tensor([2, 3, 5, 7])


def by_hand(token: int, accept_len: int, draft: int) -> Verified:
    """One request, two steps, target vocabulary 8; the target's argmax is 3 everywhere."""
    target = torch.zeros(3, 8)
    target[:, 3] = 1.0
    predict = torch.zeros(3, dtype=torch.int32)
    predict[accept_len - 1] = token
    drafts = torch.tensor([1, 5, 5])
    if accept_len < 3:
        drafts[accept_len] = draft
    return Verified(
        accept_lens=torch.tensor([accept_len], dtype=torch.int32),
        predict=predict,
        drafts=drafts,
        target_logits=target,
        pool_indices=torch.tensor([1]),
        inverse=inverse_map(HOT, 8),
        nodes=3,
        steps=2,
    )


def kept() -> DraftLogits:
    """Draft order of target tokens: 5, 2, 7, 3 at the first position, then 7, 3, 2, 5."""
    mine = DraftLogits(4, 2, 4, device="cpu")
    assert mine.keep_first(torch.tensor([1]), torch.tensor([[3.0, 1.0, 4.0, 2.0]]))
    assert mine.keep_later(1, torch.tensor([[2.0, 3.0, 1.0, 4.0]]))
    return mine


@pytest.mark.parametrize(
    ("token", "accept_len", "draft", "expected"),
    [
        (3, 1, 5, (0, 4, 0, SEEN)),
        (2, 1, 5, (0, 2, 0, SEEN)),
        (4, 1, 5, (0, 0, 0, OUTSIDE)),
        (3, 2, 7, (1, 2, 0, SEEN)),
        (5, 2, 7, (1, 4, 0, SEEN)),
        (3, 3, 0, (NOTHING_REFUSED, 0, UNKNOWN, SEEN)),
        # These logits are not those that the draft came from.
        (3, 1, 2, (0, 0, 0, NOT_SEEN)),
        (2, 1, 3, (0, 0, 1, NOT_SEEN)),
        (2, 1, 4, (0, 0, 0, NOT_SEEN)),
    ],
)
def test_one_request(
    token: int, accept_len: int, draft: int, expected: tuple[int, int, int, int]
) -> None:
    assert describe(0, by_hand(token, accept_len, draft), kept()) == expected


def test_the_argmax_itself_was_refused() -> None:
    # Refused by sampling: the draft was the target's own favourite.
    mine = kept()
    assert mine.keep_first(torch.tensor([1]), torch.tensor([[3.0, 9.0, 4.0, 2.0]]))
    assert describe(0, by_hand(5, 1, 3), mine) == (0, 2, 1, SEEN)


def tree(accept_len: int, *tokens: int) -> tuple[Verified, DraftLogits]:
    """Two beams, three steps, nodes: root, 5, 2, 5>7, 2>3, 5>7>3. ``tokens``: what was predicted.

    Draft ids 0 to 3 are target ids 2, 3, 5, 7. Candidates: 0, 1 after the root; 2, 3 after 0 and
    4, 5 after 1; the next step ran on 2 and 3, so 6, 7 come after 2 and 8, 9 after 3.
    """
    mine = DraftLogits(4, 3, 4, topk=2, nodes=6, device="cpu")
    assert mine.trees is not None
    assert mine.keep_first(torch.tensor([1]), torch.tensor([[3.0, 1.0, 4.0, 2.0]]))
    assert mine.keep_later(1, torch.tensor([[2.0, 3.0, 1.0, 4.0], [1.0, 4.0, 2.0, 3.0]]))
    assert mine.keep_later(2, torch.tensor([[1.0, 4.0, 3.0, 2.0], [9.0, 8.0, 7.0, 6.0]]))
    assert mine.trees.keep(torch.tensor([[-1, 0, 1, 2, 3]]), torch.tensor([[0, 1, 2, 4, 6]]))
    target = torch.zeros(6, 8)
    target[:, 3] = 1.0
    predict = torch.zeros(6, dtype=torch.int32)
    predict[: len(tokens)] = torch.tensor(tokens)
    round_ = Verified(
        accept_lens=torch.tensor([accept_len], dtype=torch.int32),
        predict=predict,
        drafts=torch.tensor([1, 5, 2, 7, 3, 3]),
        target_logits=target,
        pool_indices=torch.tensor([1]),
        inverse=inverse_map(HOT, 8),
        nodes=6,
        steps=3,
        topk=2,
    )
    return round_, mine


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((3,), (0, 4, 0, SEEN)),
        ((4,), (0, 0, 0, OUTSIDE)),
        # After 5 the draft wanted 7, 3: the second of them was not submitted.
        ((5, 3), (1, 2, 0, SEEN)),
        ((5, 2), (1, 3, 0, SEEN)),
        # After 2 it wanted 3, 7; 3, which was submitted, is the target's favourite.
        ((2, 7), (1, 2, 1, SEEN)),
        ((2, 5), (1, 3, 1, SEEN)),
        ((5, 7, 2), (2, 4, 1, SEEN)),
        # The draft was not run on 2>3.
        ((2, 3, 5), (2, 0, 0, UNEXPANDED)),
        ((5, 7, 3, 2), (NOTHING_REFUSED, 0, UNKNOWN, SEEN)),
        # No path of the tree.
        ((7, 3), (1, 0, UNKNOWN, NOT_SEEN)),
        ((5, 2, 3), (2, 0, UNKNOWN, NOT_SEEN)),
    ],
)
def test_one_tree(tokens: tuple[int, ...], expected: tuple[int, int, int, int]) -> None:
    assert describe(0, *tree(len(tokens), *tokens)) == expected


def test_a_tree_of_other_logits_is_not_looked_at() -> None:
    round_, mine = tree(2, 5, 3)
    # 7, which was submitted after 5, is the least likely now.
    assert mine.keep_later(1, torch.tensor([[2.0, 3.0, 1.0, 0.0], [1.0, 4.0, 2.0, 3.0]]))
    assert describe(0, round_, mine) == (1, 0, 0, NOT_SEEN)


@pytest.mark.parametrize(("topk", "nodes"), [(4, 8), (2, 10), (3, 5)])
def test_endings_of_trees_are_those_of_the_search(topk: int, nodes: int) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(40):
        round_, mine, endings = make_trees(seed, requests=6, steps=3, topk=topk, nodes=nodes)
        for row, ending in enumerate(endings[:-1]):
            position, rank, matches, flag = describe(row, round_, mine)
            if ending.position == 3:
                assert position == NOTHING_REFUSED
                continue
            assert position == ending.position
            assert matches == ending.has_argmax
            seen[position, flag] += 1
            wanted = int(round_.inverse[round_.predict[row * nodes + position]])
            if ending.logits is None:
                assert flag == UNEXPANDED
            elif wanted < 0:
                assert flag == OUTSIDE
            else:
                order = np.argsort(-ending.logits.numpy(), kind="stable")
                assert order[rank - 1] == wanted
        last = describe(5, round_, mine)
        if endings[-1].position == 0:
            assert last[3] == NOT_SEEN
            seen[0, NOT_SEEN] += 1
    assert {(p, flag) for p in range(3) for flag in (SEEN, OUTSIDE)} <= set(seen)
    assert (0, NOT_SEEN) in seen
    assert (0, UNEXPANDED) not in seen
    assert (1, UNEXPANDED) not in seen
    # Only a large tree holds more second drafts than beams.
    assert ((2, UNEXPANDED) in seen) == (topk == 2)


def test_searches_of_another_shape_are_not_kept() -> None:
    _, mine = tree(1, 3)
    assert mine.trees is not None
    assert not mine.trees.keep(torch.zeros(1, 4), torch.zeros(1, 5))
    assert not mine.trees.keep(torch.zeros(1, 5), torch.zeros(1, 4))
    assert not mine.trees.keep(torch.zeros(2, 5), torch.zeros(1, 5))


def test_rounds_of_another_shape_are_left_alone() -> None:
    ring = Ring([LAYOUT], "cpu")
    round_, mine = tree(1, 3)
    wider = Verified(**{**vars(round_), "topk": 3})
    assert not record_refusals(ring, ring.places[0], wider, mine)
    assert not record_refusals(ring, ring.places[0], round_, kept())
    assert record_refusals(ring, ring.places[0], round_, mine)


def test_ranks_are_those_of_a_sort() -> None:
    seen = set()
    for seed in range(40):
        round_, mine = make_round(seed, requests=6, steps=3)
        for row in range(1, 6):
            position, rank, _, flag = describe(row, round_, mine)
            seen.add(flag)
            if flag != SEEN or position < 0:
                continue
            token = int(round_.predict[row * 4 + position])
            logits = (
                mine.later[position - 1, row] if position else mine.first[round_.pool_indices[row]]
            )
            order = np.argsort(-logits.numpy(), kind="stable")
            assert order[rank - 1] == int(round_.inverse[token])
    assert seen == {SEEN, OUTSIDE}


def test_what_does_not_fit_goes_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_BYTES", 2 * 2 * 4 * 4)
    mine = DraftLogits(100, 2, 4, device="cpu")
    assert mine.rows == 2
    assert mine.nbytes == (3 + 2) * 4 * 4
    logits = torch.arange(20, dtype=torch.float32).view(5, 4)
    assert mine.keep_first(torch.tensor([0, 99, 1, 50, 7]), logits)
    assert torch.equal(mine.first[:2], logits[[0, 2]])
    assert mine.keep_later(1, logits)
    assert torch.equal(mine.later[0], logits[:2])


def test_other_logits_are_not_kept() -> None:
    mine = kept()
    assert not mine.keep_first(torch.tensor([1, 2]), torch.zeros(1, 4))
    assert not mine.keep_first(torch.tensor([1]), torch.zeros(1, 5))
    assert not mine.keep_first(torch.tensor([1]), torch.zeros(1, 4, dtype=torch.int64))
    assert not mine.keep_later(2, torch.zeros(1, 4))


def test_a_round_becomes_a_tick() -> None:
    ring = Ring([LAYOUT], "cpu")
    round_, mine = make_round(3, requests=6, steps=3)
    for tick in range(3):
        assert record_refusals(ring, ring.places[0], round_, mine)
        words = ring.records(0)[tick, :6, 0]
        assert words[:, 0].tolist() == [tick + 1] * 6
        assert words[:, 1].tolist() == [6] * 6
        assert [tuple(row) for row in words[:, 2:6].tolist()] == [
            describe(row, round_, mine) for row in range(6)
        ]
    assert int(ring.buffer[0]) == 3


def test_shapes_that_do_not_fit_are_left_alone() -> None:
    ring = Ring([LAYOUT], "cpu")
    round_, mine = make_round(3, requests=6, steps=3)
    short = Verified(**{**vars(round_), "target_logits": round_.target_logits[:-1]})
    assert not record_refusals(ring, ring.places[0], short, mine)
    assert int(ring.buffer[0]) == 0


def test_interpreted_kernel_equals_the_twin() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    program = Path(__file__).with_name("interpreted_refusals.py")
    path = os.pathsep.join([str(ROOT), str(program.parent)])
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines if not line["same"]] == []
    assert done.returncode == 0, done.stderr
    assert len(lines) == 12
    flags = {kind[2] for line in lines for kind in line["kinds"]}
    assert flags == {SEEN, NOT_SEEN, OUTSIDE, UNEXPANDED}
    assert {kind[1] for line in lines for kind in line["kinds"]} == {UNKNOWN, 0, 1}


@pytest.mark.parametrize("topk", [1, 4])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("capability", [90, 100, 120])
def test_kernel_compiles_for(capability: int, mapped: bool, topk: int) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from sglang_eagle3_probe.device import refusal_kernels

    kernel = refusal_kernels.refusal_kernel
    if not hasattr(kernel, "arg_names") or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the kernel is interpreted in this process")
    constants = {
        "TOPK": topk,
        "BEAMS": topk,
        "NODES": 8,
        "MAPPED": mapped,
        "BLOCK": refusal_kernels.BLOCK,
    }
    signature = dict.fromkeys(kernel.arg_names, "i32")
    signature |= {
        "accept_lens_ptr": "*i32",
        "predict_ptr": "*i32",
        "drafts_ptr": "*i64",
        "target_ptr": "*fp32",
        "pool_ptr": "*i64",
        "first_ptr": "*fp32",
        "later_ptr": "*fp32",
        "parents_ptr": "*i64",
        "submitted_ptr": "*i64",
        "inverse_ptr": "*i32",
        "ring_ptr": "*i32",
    }
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, constants, {})
    options = {"num_warps": refusal_kernels.WARPS}
    compiled = compile(source, GPUTarget("cuda", capability, 32), options=options)
    assert len(compiled.asm["cubin"]) > 1000
