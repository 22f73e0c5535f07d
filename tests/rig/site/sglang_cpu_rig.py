"""SGLang plugin of the CPU rig: what SGLang refuses to do on a CPU without AMX.

SGLang calls ``install`` in each of its processes before it imports the modules named here.
"""

from __future__ import annotations

import os
from typing import Any

import wrapt

VERIFY_VARIABLE = "SGLANG_CPU_RIG_VERIFY"


def install() -> None:
    """Registers the post-import hooks."""
    wrapt.register_post_import_hook(_keep_amx_attention, "sglang.srt.arg_groups.overrides")
    wrapt.register_post_import_hook(_allow_deterministic, "sglang.srt.arg_groups.choices")
    wrapt.register_post_import_hook(_keep_torch_kernels, "sglang.srt.batch_invariant_ops")
    if os.environ.get(VERIFY_VARIABLE, "sample") == "sample":
        wrapt.register_post_import_hook(_verify_by_sampling, "sglang.srt.speculative.eagle_utils")


class _PlatformWithAmx:
    """SGLang's platform facts, except that AMX is there."""

    has_amx = True

    def __init__(self, platform: Any) -> None:
        self._platform = platform

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)


def _keep_amx_attention(overrides: Any) -> None:
    """``intel_amx`` is the only CPU attention back end that drafts are allowed to use.

    Without AMX hardware this module would replace it by ``torch_native``. Only this module gets
    the answer: layers keep asking ``cpu_has_amx_support()`` and stay on plain torch. Up to 0.5.18
    this module asks it too.
    """
    get_platform = getattr(overrides, "get_platform", None)
    if get_platform is None:
        overrides.cpu_has_amx_support = lambda: True
        return
    overrides.get_platform = lambda: _PlatformWithAmx(get_platform())


def _allow_deterministic(choices: Any) -> None:
    """Sampling seeds need ``--enable-deterministic-inference``, which lists GPU back ends only.

    Up to 0.5.21 the lists cannot be added to here, and requests cannot be seeded on the rig.
    """
    for name in ("deterministic", "radix_supported_deterministic"):
        add = getattr(choices, f"add_{name}_attention_backend_choices", None)
        if add is not None:
            add(["intel_amx"])


def _keep_torch_kernels(batch_invariant_ops: Any) -> None:
    """Deterministic inference replaces matrix products by Triton kernels, which need a GPU.

    Torch's own may round differently for another batch size; in float32 that is around 1e-6.
    """
    batch_invariant_ops.enable_batch_invariant_mode = lambda *_, **__: None


def _verify_by_sampling(eagle_utils: Any) -> None:
    """Requests with a temperature are verified by sampling, as on a GPU.

    On a CPU SGLang has no kernels for it and takes the target's argmax instead.
    """
    import sgl_kernel

    eagle_utils.tree_speculative_sampling_target_only = (
        sgl_kernel.tree_speculative_sampling_target_only
    )
    eagle_utils.top_k_renorm_prob = sgl_kernel.top_k_renorm_prob
    eagle_utils.top_p_renorm_prob = sgl_kernel.top_p_renorm_prob
    eagle_utils._verify_uses_greedy = lambda *, is_all_greedy, **_: is_all_greedy
