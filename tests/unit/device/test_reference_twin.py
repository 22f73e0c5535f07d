"""The torch twin against the definition, one Python integer at a time."""

import math

import numpy as np
import pytest
import torch

from sglang_eagle3_probe.device import reference
from sglang_eagle3_probe.device.layout import MIX_A, MIX_B, SiteLayout, decode
from sglang_eagle3_probe.device.ring import Ring

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
WORD = 0xFFFFFFFF


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def bits_of(values):
    if values.dtype == torch.float32:
        return [int(v) & WORD for v in values.view(torch.int32)]
    return [int(v) & 0xFFFF for v in values.view(torch.int16)]


def defined_fingerprint(values, mix):
    total = 0
    for column, bits in enumerate(bits_of(values)):
        x = (bits * mix.value_factor + column * mix.column_factor + mix.seed) & WORD
        x = ((x ^ (x >> mix.shifts[0])) * mix.factors[0]) & WORD
        x = ((x ^ (x >> mix.shifts[1])) * mix.factors[1]) & WORD
        total += x ^ (x >> mix.shifts[2])
    return total & WORD


def measured(values):
    """The fields of one piece, [width]."""
    words = torch.zeros(8, dtype=torch.int32)
    words[2:] = reference.measure(values)
    return decode(words.numpy())


def prints(values):
    fields = measured(values)
    return int(fields["fingerprint_a"]), int(fields["fingerprint_b"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 64, 193])
def test_twin_equals_the_definition(dtype, width):
    torch.manual_seed(width)
    values = (torch.randn(width) * 3).to(dtype)
    if width > 1:
        values[::7] = math.nan
        values[3], values[5], values[6] = math.inf, -math.inf, -0.0
    fields = measured(values)
    numbers = np.array([v for v in values.double().tolist() if math.isfinite(v)])
    assert fields["mean"] == pytest.approx(numbers.mean(), rel=1e-5, abs=1e-6)
    assert fields["rms"] == pytest.approx(math.sqrt((numbers**2).mean()), rel=1e-5)
    assert fields["absmax"] == np.float32(abs(numbers).max())
    assert fields["nonfinite"] == width - len(numbers)
    assert fields["fingerprint_a"] == defined_fingerprint(values, MIX_A)
    assert fields["fingerprint_b"] == defined_fingerprint(values, MIX_B)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_finite_measures_zero(dtype):
    fields = measured(torch.full((64,), math.nan, dtype=dtype))
    assert fields.tolist()[2:6] == (0.0, 0.0, 0.0, 64)


def test_one_flipped_bit_always_shows():
    values = torch.randn(64)
    before = prints(values)
    seen = {before}
    for column in (0, 1, 31, 63):
        for bit in range(32):
            changed = values.clone()
            changed.view(torch.int32)[column] ^= -(2**31) if bit == 31 else 1 << bit
            after = prints(changed)
            assert after[0] != before[0]
            assert after[1] != before[1]
            seen.add(after)
    assert len(seen) == 4 * 32 + 1


def test_the_order_of_columns_shows():
    values = torch.randn(192).to(torch.bfloat16)
    seen = {prints(values)}
    for shift in range(1, 192):
        seen.add(prints(values.roll(shift)))
    swapped = values.clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    seen.add(prints(swapped))
    assert len(seen) == 193


def test_the_width_of_zeros_shows():
    seen = {prints(torch.zeros(width)) for width in range(1, 300)}
    assert len(seen) == 299


def test_signs_of_zero_and_kinds_of_nan_show():
    zero = torch.zeros(64)
    nan = torch.full((64,), math.nan)
    other = nan.clone()
    other.view(torch.int32)[5] ^= 1
    assert len({prints(v) for v in (zero, -zero, nan, other)}) == 4


def test_fingerprints_spread_over_all_bits():
    pieces = torch.randn(4096, 64).to(torch.bfloat16)
    words = reference.measure(pieces).numpy()[:, 4:].astype(np.int64) & WORD
    for column in (0, 1):
        assert len(np.unique(words[:, column])) >= 4094  # one pair collides in 500 such draws
        for bit in range(32):
            assert 0.45 < ((words[:, column] >> bit) & 1).mean() < 0.55
    agree = np.array([(((words[:, 0] ^ words[:, 1]) >> b) & 1).mean() for b in range(32)])
    assert ((agree > 0.45) & (agree < 0.55)).all()


def test_slots_with_equal_values_have_equal_prints():
    piece = torch.randn(5, 64).to(torch.float16)
    ring = Ring([SiteLayout("a", 3, 8, 2)], "cpu")
    reference.record(ring, ring.places[0], torch.cat([piece, piece * 2, piece], dim=1))
    words = ring.records(0)[0, :5]
    assert torch.equal(words[:, 0], words[:, 2])
    assert not torch.equal(words[:, 0], words[:, 1])


def test_ticks_go_around_the_ring():
    ring = Ring([SiteLayout("a", 2, 4, 4), SiteLayout("b", 1, 4, 4)], "cpu")
    for tick in range(6):
        reference.record(ring, ring.places[0], torch.full((3, 8), float(tick)))
    fields = decode(ring.records(0).numpy())
    assert fields["tag"][:, 0, 0].tolist() == [5, 6, 3, 4]
    assert fields["mean"][:, 2, 1].tolist() == [4.0, 5.0, 2.0, 3.0]
    assert (fields["rows"][:, :3] == 3).all()
    assert not ring.records(0)[:, 3].any()
    assert ring.buffer[:4].tolist() == [6, 0, 0, 0]
    assert not ring.records(1).any()


def test_many_rows_are_sampled_evenly():
    ring = Ring([SiteLayout("a", 1, 4, 2)], "cpu")
    x = torch.arange(10.0)[:, None].expand(10, 8)
    reference.record(ring, ring.places[0], x)
    fields = decode(ring.records(0)[0, :, 0].numpy())
    assert fields["mean"].tolist() == [0.0, 3.0, 6.0, 9.0]
    assert fields["rows"].tolist() == [10] * 4
