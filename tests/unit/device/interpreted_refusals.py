"""Compare the refusal kernel, interpreted by Triton, with its twin. A program, not a test module.

Start it with TRITON_INTERPRET=1; prints one JSON line per case, exits 1 when one differs.
"""

import json
import sys

import torch
from refusal_rounds import make_round, make_trees

from sglang_eagle3_probe.device import refusal_kernels, refusal_reference
from sglang_eagle3_probe.device.layout import SiteLayout
from sglang_eagle3_probe.device.ring import Ring


def compare(max_rows, first_tick, **shape):
    """Run both over three rounds; (same, how many rows of each flag)."""
    refusal_kernels.BLOCK = 64  # several blocks a row, the last one not full
    sites = [SiteLayout("other", 1, 3, 2), SiteLayout("refusals", 1, max_rows, 4)]
    rings = [Ring(sites, "cpu") for _ in range(2)]
    for ring in rings:
        ring.buffer[2] = first_tick
    flags = []
    good = True
    for seed in range(5):
        round_, kept = (make_trees if "topk" in shape else make_round)(seed, **shape)[:2]
        refusal_kernels.launch(rings[0], rings[0].places[1], round_, kept)
        refusal_reference.record(rings[1], rings[1].places[1], round_, kept)
        good &= torch.equal(rings[0].buffer, rings[1].buffer)
    flags = rings[1].records(1)[..., 0, 2:6].reshape(-1, 4)
    return good, sorted({tuple(row[[0, 2, 3]].tolist()) for row in flags})


def cases():
    """Keywords of ``compare``."""
    base = {"max_rows": 8, "first_tick": 0, "requests": 6, "steps": 3}
    yield base
    yield {**base, "mapped": False}
    yield {**base, "topk": 4, "nodes": 8}
    yield {**base, "topk": 3, "nodes": 7, "requests": 8, "mapped": False}
    yield {**base, "topk": 2, "nodes": 9, "steps": 4, "pool_rows": 4}
    yield {**base, "topk": 4, "nodes": 5, "steps": 1}
    yield {**base, "pool_rows": 4}
    yield {**base, "steps": 1}
    yield {**base, "dtype": torch.bfloat16}
    yield {**base, "max_rows": 2, "requests": 5}
    yield {**base, "first_tick": -3}
    yield {**base, "first_tick": 2**31 - 2}


def main():
    """Run all cases."""
    torch.set_num_threads(1)
    failed = 0
    for case in cases():
        good, kinds = compare(**case)
        failed += not good
        text = {name: str(value) for name, value in case.items()}
        print(json.dumps({"case": text, "same": bool(good), "kinds": kinds}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
