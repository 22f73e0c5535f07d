"""Which runs cover every pair of {V1, V2} x {TP 1, 2} x {topk 1, 4} x {back ends} x {shapes}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """One combination; the SGLang release decides V1 or V2 (0.5.12.post1 or 0.5.17)."""

    worker: str
    tp: int
    topk: int
    backend: str
    family: str

    @property
    def name(self) -> str:
        """Such as v2-tp1-k4-triton-llama."""
        return f"{self.worker}-tp{self.tp}-k{self.topk}-{self.backend}-{self.family}"

    def is_named(self, only: str) -> bool:
        """Whether the name contains one of these, separated by commas; nothing names all."""
        return any(part in self.name for part in only.split(","))

    def arguments(self, model: str, draft: str) -> dict[str, Any]:
        """Keyword arguments of ``sglang.Engine``."""
        arguments: dict[str, Any] = {
            "model_path": model,
            "speculative_draft_model_path": draft,
            "speculative_algorithm": "EAGLE3",
            "speculative_num_steps": 3,
            "speculative_eagle_topk": self.topk,
            "speculative_num_draft_tokens": 4 if self.topk == 1 else 8,
            "attention_backend": self.backend,
            "tp_size": self.tp,
            **BASE,
        }
        if self.worker == "v1":
            arguments["disable_overlap_schedule"] = True
        if self.tp > 1:
            # Seen to hang otherwise on machines without NVLink multicast.
            arguments["disable_custom_all_reduce"] = True
            arguments["enforce_disable_flashinfer_allreduce_fusion"] = True
        return arguments


CHAIN_AND_TREE: tuple[Run, ...] = tuple(
    Run(worker, tp, topk, "triton", family)
    for worker in ("v2", "v1")
    for tp in (1, 2)
    for topk, family in ((1, "deepseek"), (4, "llama"))
)
"""Both shapes on the back end whose kernels compile in seconds, a chain and a tree."""

BASE: dict[str, Any] = {
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "mem_fraction_static": 0.5,
    "max_total_tokens": 20000,
    "max_running_requests": 8,
    # One request per prefill batch, so that batches do not depend on when requests arrive.
    "chunked_prefill_size": 64,
    "skip_tokenizer_init": True,
    "skip_server_warmup": True,
    "log_level": "info",
    "random_seed": 0,
}

COVERING: tuple[Run, ...] = (
    Run("v2", 1, 1, "triton", "deepseek"),
    Run("v2", 1, 4, "flashinfer", "llama"),
    Run("v1", 1, 1, "flashinfer", "llama"),
    Run("v1", 1, 4, "triton", "deepseek"),
    Run("v2", 2, 4, "triton", "llama"),
    Run("v1", 2, 1, "triton", "llama"),
    Run("v2", 2, 1, "flashinfer", "deepseek"),
    Run("v1", 2, 4, "flashinfer", "deepseek"),
)
"""Every pair of values of two of the five factors is in at least one of these."""


def uncovered() -> list[tuple[str, str]]:
    """Pairs of values that no run has; empty by construction, and a test says so."""
    values = [
        [("worker", w) for w in ("v1", "v2")],
        [("tp", t) for t in (1, 2)],
        [("topk", k) for k in (1, 4)],
        [("backend", b) for b in ("triton", "flashinfer")],
        [("family", f) for f in ("deepseek", "llama")],
    ]
    missing = []
    for i, first in enumerate(values):
        for second in values[i + 1 :]:
            for a in first:
                for b in second:
                    if not any(
                        getattr(r, a[0]) == a[1] and getattr(r, b[0]) == b[1] for r in COVERING
                    ):
                        missing.append((f"{a[0]}={a[1]}", f"{b[0]}={b[1]}"))
    return missing
