"""The Triton kernel without a GPU: interpreted against the twin, and compiled for real devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

ROOT = Path(__file__).resolve().parents[3]


def test_interpreted_kernel_equals_the_twin():
    # Its own process: Triton reads TRITON_INTERPRET when kernels are defined.
    program = Path(__file__).with_name("interpreted.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines if not line["same"]] == []
    assert done.returncode == 0, done.stderr
    assert len(lines) == 30


@pytest.mark.parametrize("width", [2048, 7168])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("capability", [90, 100, 120])
def test_kernel_compiles_for(capability, dtype, width):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from sglang_eagle3_probe.device import kernels

    kernel = kernels.record_kernel
    if not hasattr(kernel, "arg_names") or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the kernel is interpreted in this process")
    block, warps = kernels.block_of(width)
    constants = {
        "WIDTH": width,
        "BLOCK": block,
        "EXPONENT": kernels.EXPONENT_BITS[dtype],
        "HALF": dtype is torch.bfloat16,
    }
    signature = dict.fromkeys(kernel.arg_names, "i32")
    signature["x_ptr"] = "*bf16" if dtype is torch.bfloat16 else "*fp32"
    signature["ring_ptr"] = "*i32"
    signature.update(dict.fromkeys(constants, "constexpr"))
    attributes = {
        (kernel.arg_names.index(name),): [["tt.divisibility", 16]]
        for name in ("x_ptr", "ring_ptr", "row_stride")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    compiled = compile(source, GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    assert len(compiled.asm["cubin"]) > 1000
    assert "ld.global.v4" in compiled.asm["ptx"]  # 16 bytes a thread and load
    assert compiled.asm["ptx"].count("st.global") == 2  # the record, and done


@pytest.mark.parametrize(
    ("width", "block", "warps"),
    [(1, 64, 1), (64, 64, 1), (192, 256, 1), (2048, 2048, 4), (7168, 8192, 16), (16384, 8192, 16)],
)
def test_block_follows_the_width(width, block, warps):
    from sglang_eagle3_probe.device.kernels import block_of

    assert block_of(width) == (block, warps)
