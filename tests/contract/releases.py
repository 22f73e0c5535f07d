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
    "classes": "the release's own classes were run with the probe around them",
    "live on CPU": "a real server answered with the probe on, on the CPU rig",
    "live on H200": "a real server answered with the probe on, with CUDA graphs on an H200",
}
"""What a release can be proved by, weakest first."""

PROVED_BY: dict[str, tuple[str, ...]] = {
    "0.5.23": ("live on CPU",),
}
"""Proofs beyond the signature, which every release has. A row needs a test to show for it."""


def strongest_proof(release: str) -> str:
    """The strongest proof that a release has."""
    order = list(PROOFS)
    return max(("signature", *PROVED_BY.get(release, ())), key=order.index)
