"""The SGLang releases that the contract is checked on, and how strongly each was proved."""

from __future__ import annotations

RELEASES: tuple[str, ...] = (
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)
"""Every final and post-release from the oldest to the newest proved, oldest first."""

PROOFS: dict[str, str] = {
    "signature": "targets, parameters and facts found in the wheel, by `ast`",
    "classes": "the release's own argument parser, target classes (DeepSeek-V2, Llama, Mistral, "
    "Qwen2, Qwen3, Qwen2-MoE, Qwen3-MoE, GLM-4 MoE, gpt-oss: setter and forward) and result "
    "processor were run with the probe around them, on a CPU and one torch for all",
    "live, no draft": "a real server without a draft answered on the CPU rig, started by the "
    "probe's launcher; its scheduler was patched",
    "live on CPU": "a real server answered with the probe on, on the CPU rig, a list with -1 and "
    "the tokens of plain decoding; releases before 0.5.23 on its dependencies",
    "live on H200": "a real server answered with the probe on, with CUDA graphs on an H200",
}
"""What a release can be proved by, weakest first."""

PROVED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(RELEASES, ("classes",)),
    "0.5.10.post1": ("classes", "live, no draft"),
    "0.5.12.post1": ("classes", "live on H200"),
    "0.5.17": ("classes", "live on H200"),
    "0.5.21": ("classes", "live on CPU"),
    "0.5.23": ("classes", "live on CPU"),
}
"""Proofs beyond the signature, which every release has. ``classes``: test_probed_classes, families;
``live on CPU``: tests/live; ``live on H200``: docs/measurements/h200-2026-11-29.md."""


def strongest_proof(release: str) -> str:
    """The strongest proof that a release has."""
    order = list(PROOFS)
    return max(("signature", *PROVED_BY.get(release, ())), key=order.index)
