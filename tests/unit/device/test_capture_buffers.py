"""The arena, the draft's steps and the boundaries: everything the capture keeps on the device."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_probe.device.boundary_rows import BoundaryRows
from sglang_eagle3_probe.device.capture_arena import ALIGNMENT, CaptureArena, Parcel
from sglang_eagle3_probe.device.draft_steps import DraftSteps

F32 = torch.float32


def test_a_parcel_comes_back_as_it_was_filled() -> None:
    arena = CaptureArena(4096, "cpu")
    parcel = arena.reserve({"a": (torch.bfloat16, (3, 5)), "b": (torch.int64, (2,))})
    assert parcel is not None
    values = torch.randn(3, 5).to(torch.bfloat16)
    arena.on_device(parcel, "a").copy_(values)
    arena.on_device(parcel, "b").copy_(torch.tensor([7, 8]))
    assert not arena.has_arrived(parcel)
    assert arena.send([parcel])
    assert arena.has_arrived(parcel)
    host = arena.on_host(parcel)
    arena.on_device(parcel, "a").zero_()
    assert torch.equal(host["a"], values)
    assert host["b"].tolist() == [7, 8]


def test_no_room_until_something_is_given_back() -> None:
    arena = CaptureArena(4 * ALIGNMENT, "cpu")
    one = {"a": (torch.uint8, (ALIGNMENT,))}
    parcels = [arena.reserve(one) for _ in range(4)]
    assert all(parcels)
    assert arena.reserve(one) is None
    assert arena.reserve({"a": (torch.uint8, (5 * ALIGNMENT,))}) is None
    second, first = parcels[1], parcels[0]
    assert first is not None
    assert second is not None
    arena.release(second)
    assert arena.reserve(one) is None  # the ring goes on in order
    arena.release(first)
    again = arena.reserve({"a": (torch.uint8, (2 * ALIGNMENT,))})
    assert again is not None
    assert again.start == 0
    assert arena.reserve(one) is None


@given(st.lists(st.tuples(st.integers(1, 3000), st.booleans()), max_size=60))
def test_parcels_never_overlap(wanted: list[tuple[int, bool]]) -> None:
    arena = CaptureArena(8192, "cpu")
    held: list[Parcel] = []
    for nbytes, give_back in wanted:
        parcel = arena.reserve({"a": (torch.uint8, (nbytes,))})
        if parcel is not None:
            assert parcel.start + parcel.nbytes <= arena.nbytes
            for other in held:
                apart = (
                    parcel.start >= other.start + other.nbytes
                    or other.start >= parcel.start + parcel.nbytes
                )
                assert apart
            held.append(parcel)
        if give_back and held:
            arena.release(held.pop(0))


def test_an_arena_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        CaptureArena(10, "cpu")


def test_draft_steps_keep_rows_by_step() -> None:
    steps = DraftSteps(8, 2, 3, 4, F32, "cpu")
    ids = torch.arange(6)  # two requests, three candidates each, as SGLang flattens them
    hidden = torch.randn(6, 4)
    assert steps.keep("ids", 0, ids)
    assert steps.keep("hidden", 0, hidden)
    assert steps.keep("scores", 1, torch.ones(2, 3))
    assert steps.ids[0, 1].tolist() == [3, 4, 5]
    assert torch.equal(steps.hidden[0, 1], hidden[3:])
    assert not steps.has("ids", 2)
    assert steps.has("ids", 1)
    assert not steps.keep("ids", 2, ids)
    assert not steps.keep("hidden", 0, torch.randn(6, 5))
    assert not steps.keep("ids", 0, torch.arange(4))


def test_boundaries_are_sums_of_both_parts_of_the_stream() -> None:
    rows = BoundaryRows(4 * 3 * 5 * 4, 2, 5, F32, "cpu")
    assert rows.rows == 4
    hidden, residual = torch.randn(6, 5), torch.randn(6, 5)
    rows.begin()
    assert rows.keep(0, hidden)
    assert rows.keep(1, hidden, residual)
    assert not rows.is_whole()
    assert rows.keep(2, residual)
    assert rows.is_whole()
    assert torch.equal(rows.states[0], hidden[:4])
    assert torch.equal(rows.states[1], (hidden + residual)[:4])
    assert torch.equal(rows.norm, residual[:4])
    rows.begin()
    assert not rows.is_whole()
    assert not rows.keep(0, torch.randn(6, 7))
    assert not rows.keep(0, hidden, residual[:3])
    assert not rows.keep(3, hidden)
