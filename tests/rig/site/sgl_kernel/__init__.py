"""Plain-torch stand-in for the CPU build of SGLang's kernel package.

Real SGLang imports a package called ``sgl_kernel`` for its fused kernels. The wheel that
``pip install sglang`` brings is compiled for CUDA and does not load without a GPU. Placed
earlier on ``PYTHONPATH``, this package supplies the few kernels that serving with EAGLE-3 on
a CPU calls, written for clarity and not for speed. Any other name can be imported (SGLang
binds many at import) and raises ``NotImplementedError`` when called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sgl_kernel import operators
from sgl_kernel.cache_locs import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
)
from sgl_kernel.kv_copy import copy_all_layer_kv_cache_cpu
from sgl_kernel.tokens import (
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu
from sgl_kernel.tree_sampling import (
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
)

__version__ = "0.0.0+cpu.rig"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy_cpu",
]

operators.register()


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(f"module 'sgl_kernel' has no attribute {name!r}")

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"sgl_kernel.{name} is not part of the CPU rig; see tests/rig/README.md"
        )

    missing.__name__ = missing.__qualname__ = name
    return missing
