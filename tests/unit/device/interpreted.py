"""Compare the kernel, run by Triton's interpreter, with the twin. A program, not a test module.

Start it with TRITON_INTERPRET=1; prints one JSON line per case, exits 1 when one differs.
"""

import itertools
import json
import math
import sys

import torch

from sglang_eagle3_probe.device import kernels, reference
from sglang_eagle3_probe.device.layout import SiteLayout
from sglang_eagle3_probe.device.ring import Ring

EXACT = [0, 1, 5, 6, 7]


def same(one, other):
    """Whether two regions agree: words exactly, floats within rounding."""
    if not torch.equal(one[..., EXACT], other[..., EXACT]):
        return False
    floats = [words[..., 2:5].contiguous().view(torch.float32) for words in (one, other)]
    return torch.allclose(*floats, rtol=1e-5, atol=1e-6)


def compare(dtype, width, slots, rows, max_rows, first_tick, launches):
    """Run both over the same launches; True when the rings agree at every tick."""
    sites = [SiteLayout("other", 1, 3, 2), SiteLayout("site", slots, max_rows, 4)]
    rings = [Ring(sites, "cpu") for _ in range(2)]
    for ring in rings:
        ring.buffer[2] = first_tick
    good = True
    for launch in range(launches):
        # rows wider apart than they are long, as a slice of a larger tensor has them
        wide = torch.randn(rows, slots * width + 16 * launch) * 10
        x = wide.to(dtype)[:, : slots * width]
        if launch:
            x[0, 1], x[-1, -1], x[rows // 2, width // 2] = math.nan, -math.inf, -0.0
        if launch == 2:
            x[0, :width] = math.inf
        kernels.launch(rings[0], rings[0].places[1], x)
        reference.record(rings[1], rings[1].places[1], x)
        good &= torch.equal(rings[0].buffer[:4], rings[1].buffer[:4])
        good &= same(rings[0].records(1), rings[1].records(1))
    return good and not rings[0].records(0).any()


def cases():
    """(dtype, width, slots, rows, max_rows, first tick, launches)."""
    dtypes = [torch.bfloat16, torch.float16, torch.float32]
    pieces = [(64, 1), (192, 3), (1000, 2), (192, 4)]
    for dtype, (width, slots) in itertools.product(dtypes, pieces):
        yield dtype, width, slots, 3, 4, 0, 3
    for dtype in dtypes:
        yield dtype, 7168, 3, 2, 2, 0, 2
        yield dtype, 8193, 1, 1, 2, 0, 2  # two blocks, the second with one value
        yield dtype, 16384, 1, 2, 2, 0, 2
        yield dtype, 64, 2, 11, 4, 0, 6  # rows sampled, ring gone around
        yield dtype, 64, 1, 2, 2, -3, 5  # the 32-bit tick wraps around
        yield dtype, 64, 1, 2, 2, 2**31 - 2, 5  # and its sign turns


def main():
    """Run all cases."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    failed = 0
    for case in cases():
        good = compare(*case)
        failed += not good
        print(json.dumps({"case": [str(part) for part in case], "same": bool(good)}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
