"""Which tensors a tap takes, and how it counts those it leaves alone."""

import subprocess
import sys

import pytest
import torch

from sglang_eagle3_probe.device import tap
from sglang_eagle3_probe.device.layout import SiteLayout
from sglang_eagle3_probe.device.ring import Ring


@pytest.fixture
def ring():
    return Ring([SiteLayout("aux", 3, 4, 4)], "cpu")


def test_a_fitting_tensor_is_recorded(ring):
    assert tap.record(ring, 0, torch.ones(2, 6))
    assert int(ring.buffer[0]) == 1
    assert ring.skipped == {}


def test_gradients_do_not_matter(ring):
    assert tap.record(ring, 0, torch.ones(2, 6, requires_grad=True))


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.ones(2, 6, dtype=torch.float64), tap.DTYPE),
        (torch.ones(2, 6, dtype=torch.int32), tap.DTYPE),
        (torch.ones(6), tap.SHAPE),
        (torch.ones(1, 2, 6), tap.SHAPE),
        (torch.ones(1).expand(1, 3 * (tap.MAX_WIDTH + 1)), tap.SHAPE),
        (torch.ones(0, 6), tap.EMPTY),
        (torch.ones(2, 0), tap.EMPTY),
        (torch.ones(2, 7), tap.SLOTS),
        (torch.ones(6, 2).t(), tap.STRIDES),
        (torch.ones(2, 12)[:, ::2], tap.STRIDES),
        (torch.ones(2, 6, device="meta"), tap.DEVICE),
    ],
)
def test_what_does_not_fit_is_counted(ring, tensor, reason):
    assert not tap.record(ring, 0, tensor)
    assert not tap.record(ring, 0, tensor)
    assert ring.skipped == {("aux", reason): 2}
    assert not ring.buffer.any()


def test_rows_may_be_apart_or_the_same(ring):
    assert tap.record(ring, 0, torch.ones(4, 12)[::2, :6])
    assert tap.record(ring, 0, torch.ones(6).expand(3, 6))
    assert int(ring.buffer[0]) == 2


def test_warm_up_has_nothing_to_do_on_a_cpu(ring):
    assert not tap.warm_up(ring, torch.bfloat16, 64)
    assert not ring.buffer.any()


def test_the_cpu_path_imports_neither_triton_nor_the_rest_of_the_package():
    program = """
import sys, torch
before = set(sys.modules)
from sglang_eagle3_probe.device import drain, layout, ring, tap
r = ring.Ring([layout.SiteLayout("a", 1, 2, 2)], "cpu")
assert tap.record(r, 0, torch.ones(2, 6))
new = set(sys.modules) - before
allowed = ("sglang_eagle3_probe.device", "sglang_eagle3_probe")
ours = [m for m in new if m.startswith("sglang") and not m.startswith(allowed[0])]
assert ours in ([], ["sglang_eagle3_probe"]), ours
assert "sglang_eagle3_probe.device.kernels" not in new
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


class Kernels:
    """Stands in for the module with the kernel."""

    def __init__(self):
        self.launched = set()

    def specialisation(self, tensor, width, row_stride):
        return (tensor.dtype, width, row_stride % 16 == 0)

    def is_ready(self, key):
        return key in self.launched

    def launch(self, ring, place, tensor):
        width = tensor.shape[1] // place.layout.slots
        self.launched.add(self.specialisation(tensor, width, tensor.stride(0)))


class OnDevice:
    """A CPU tensor that says it is a CUDA tensor."""

    def __init__(self, tensor):
        self._tensor = tensor

    is_cuda = True

    def __getattr__(self, name):
        return getattr(self._tensor, name)


def test_nothing_is_compiled_during_a_capture(ring, monkeypatch):
    stand_in = Kernels()
    capturing = True
    monkeypatch.setattr(tap, "kernels", lambda: stand_in)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    tensor = OnDevice(torch.ones(2, 48))
    assert not tap.record(ring, 0, tensor)
    assert ring.skipped == {("aux", tap.NOT_COMPILED): 1}
    capturing = False
    assert tap.record(ring, 0, tensor)  # an eager warm-up run
    capturing = True
    assert tap.record(ring, 0, tensor)
    assert not tap.record(ring, 0, OnDevice(torch.ones(2, 96)))  # another width
    assert ring.skipped == {("aux", tap.NOT_COMPILED): 2}


def test_a_gpu_without_triton_is_counted(ring, monkeypatch):
    monkeypatch.setattr(tap, "kernels", lambda: None)
    assert not tap.record(ring, 0, OnDevice(torch.ones(2, 6)))
    assert ring.skipped == {("aux", tap.NO_TRITON): 1}
