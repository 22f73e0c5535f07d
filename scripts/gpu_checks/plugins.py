"""SGLang plugins that the checks load beside the probe: what it must survive or is compared with.

Each is written as a package with its own entry point into a folder for PYTHONPATH.
"""

from __future__ import annotations

import os
from pathlib import Path

NAIVE_COPY = """
def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def after(result, *args, **kwargs):
        hidden = result.logits_output.hidden_states
        if hidden is not None:
            hidden.float().cpu()

    HookRegistry.register(
        "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.verify", after, HookType.AFTER
    )
"""
"""Copies the verify hidden states to the host in every round, as people do by hand."""

BROKEN_KERNEL = """
import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=[
        "rows", "row_step", "slots", "max_rows", "depth_mask", "tick_at", "done_at", "records_at"
    ]
)
def broken(
    x_ptr, ring_ptr, row_stride, rows, row_step, slots, max_rows, depth_mask, tick_at, done_at,
    records_at, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EXPONENT: tl.constexpr,
    HALF: tl.constexpr,
):
    tl.static_assert(WIDTH < 0, "made not to compile")


def register():
    import os

    if os.environ.get("SGLANG_EAGLE3_PROBE"):
        from sglang_eagle3_probe.device import kernels

        kernels.record_kernel = broken
"""
"""The probe's tap kernel replaced by one that Triton refuses to compile."""

RECAPTURE = """
def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def after(result, self, *args, **kwargs):
        if self.draft_worker is not None and not getattr(self, "_recaptured", False):
            self._recaptured = True
            self.tp_worker.model_runner.init_decode_cuda_graph()
            self.draft_worker.init_cuda_graphs()
            print("recapture: done", flush=True)
        return result

    HookRegistry.register(
        "sglang.srt.managers.scheduler.Scheduler.flush_cache", after, HookType.AFTER
    )
"""
"""Captures every graph anew at the first flush, by the calls SGLang makes at start-up and after a
weight update that asks for it."""


def python_path_with(place: Path, name: str, source: str) -> dict[str, str]:
    """Write the plugin under ``place``; the environment in which SGLang finds it."""
    folder = place / f"plugin-{name}"
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {name}:register\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path}
