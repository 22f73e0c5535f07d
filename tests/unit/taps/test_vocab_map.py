from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sglang_eagle3_probe.taps.draft_built import describe_map  # noqa: E402
from sglang_eagle3_probe.trace.records import VocabMap  # noqa: E402

KEPT = torch.tensor([0, 1, 4, 7, 8, 15])
OFFSETS = KEPT - torch.arange(6)
MASK = torch.zeros(16, dtype=torch.bool)
MASK[KEPT] = True


def described(ids: Any, d2t: Any, t2d: Any) -> VocabMap:
    record = VocabMap(present=True, in_force=True, target_vocab_size=16)
    describe_map(record, ids, d2t, t2d)
    return record


def test_a_right_map() -> None:
    record = described(KEPT, OFFSETS, MASK)
    assert (record.size, record.minimum, record.maximum) == (6, 0, 15)
    assert record.identity_share == pytest.approx(2 / 6)
    assert record.strictly_increasing
    assert record.duplicates == 0
    assert record.equals_d2t_plus_arange
    assert record.agrees_with_t2d
    assert record.d2t_looks_direct is False


def test_target_ids_stored_as_offsets_are_recognised() -> None:
    served = KEPT + torch.arange(6)
    record = described(served, KEPT, MASK)
    assert record.d2t_looks_direct
    assert record.agrees_with_t2d is False
    assert record.maximum == 20


def test_duplicates_and_order() -> None:
    record = described(torch.tensor([0, 4, 4, 1]), None, None)
    assert record.strictly_increasing is False
    assert record.duplicates == 1
    assert record.equals_d2t_plus_arange is None
    assert record.agrees_with_t2d is None


def test_digest_tells_maps_apart() -> None:
    other = KEPT.clone()
    other[5] = 14
    assert described(KEPT, OFFSETS, MASK).digest == described(KEPT, OFFSETS, MASK).digest
    assert described(other, OFFSETS, MASK).digest != described(KEPT, OFFSETS, MASK).digest
