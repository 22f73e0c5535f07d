"""Windows made of real ring records (torch twin), against direct computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.device.drain import Drain  # noqa: E402
from sglang_eagle3_probe.device.layout import SiteLayout  # noqa: E402
from sglang_eagle3_probe.device.ring import Ring  # noqa: E402
from sglang_eagle3_probe.device.tap import record  # noqa: E402
from sglang_eagle3_probe.device.window import rows_as_one, share_found, summarise  # noqa: E402

ROWS, SLOTS, WIDTH = 8, 3, 16


def window(tensors: list[Any], real_rows: dict[int, int], *, full: bool = False) -> Any:
    ring = Ring([SiteLayout("aux", SLOTS, ROWS, 8)], torch.device("cpu"))
    for tensor in tensors:
        assert record(ring, 0, tensor)
    drain = Drain(ring)
    assert drain.start()
    snapshot = drain.poll()
    assert snapshot is not None
    first, words, lost = snapshot.records(0, 0)
    assert lost == 0
    return summarise(words, first, ROWS, real_rows, full=full)


def test_statistics_over_real_rows_only() -> None:
    tensors = [torch.randn(4, SLOTS * WIDTH) for _ in range(3)]
    tensors[1][3] = 1e6
    found = window(tensors, {1: 3})
    assert (found.rows, found.padded_rows_dropped) == (11, 1)
    assert (found.first_tick, found.last_tick) == (0, 2)
    kept = torch.cat([tensors[0], tensors[1][:3], tensors[2]]).view(-1, SLOTS, WIDTH)
    rms = kept.pow(2).mean(-1).sqrt()
    for slot in range(SLOTS):
        assert found.slots[slot].rms_mean == pytest.approx(float(rms[:, slot].mean()), rel=1e-5)
        assert found.slots[slot].rms_min == pytest.approx(float(rms[:, slot].min()), rel=1e-5)
        assert found.slots[slot].absmax == pytest.approx(float(kept[:, slot].abs().max()))
    assert not found.sampled
    assert found.same_slots == ()


def test_equal_slots_and_nonfinite_values() -> None:
    tensor = torch.randn(4, SLOTS * WIDTH)
    tensor[:, 2 * WIDTH :] = tensor[:, :WIDTH]
    tensor[2, WIDTH] = float("inf")
    found = window([tensor], {})
    assert found.same_slots == ((0, 2),)
    assert [slot.nonfinite for slot in found.slots] == [0, 1, 0]


def test_rows_are_recognised_across_tensors() -> None:
    a, b = torch.randn(4, SLOTS * WIDTH), torch.randn(4, SLOTS * WIDTH)
    mixed = torch.stack([a[2], b[1], b[0], torch.randn(SLOTS * WIDTH)])
    theirs = rows_as_one(window([a, b], {}).fingerprints)
    assert share_found(rows_as_one(window([mixed], {}).fingerprints), theirs) == 0.75
    swapped = torch.cat([a[:, WIDTH:], a[:, :WIDTH]], dim=1)
    assert share_found(rows_as_one(window([swapped], {}).fingerprints), theirs) == 0.0


def test_digests_tell_ticks_apart_and_agree_between_runs() -> None:
    tensors = [torch.randn(4, SLOTS * WIDTH) for _ in range(3)]
    first, second = window(tensors, {}), window(tensors, {})
    assert first.tick_digests == second.tick_digests
    assert len(set(first.tick_digests.values())) == 3
    tensors[2][0, 0] += 1
    assert window(tensors, {}).tick_digests["2"] != first.tick_digests["2"]


def test_full_rows_name_tick_row_and_slot() -> None:
    tensor = torch.randn(2, SLOTS * WIDTH)
    rows = np.array(window([tensor], {}, full=True).full_rows)
    assert rows[:, :3].tolist() == [[0, r, s] for r in range(2) for s in range(SLOTS)]
    rms = tensor.view(2, SLOTS, WIDTH).pow(2).mean(-1).sqrt().flatten().numpy()
    np.testing.assert_allclose(rows[:, 4], rms, rtol=1e-5)


def test_nothing_to_say() -> None:
    assert window([], {}) is None
    assert window([torch.randn(4, SLOTS * WIDTH)], {0: 0}) is None
