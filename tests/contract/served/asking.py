"""Which release a test asks, and the skip where it cannot be asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from .releases import folder_of, installed

ALL_VARIABLE = "EAGLE3_PROBE_ALL_RELEASES"
"""Set to 1 to run every release that is unpacked here."""


def only_usual(release: str, usual: Sequence[str]) -> None:
    """Skip what a plain test run leaves to ``scripts/check_releases``."""
    if release not in usual and os.environ.get(ALL_VARIABLE) != "1":
        pytest.skip(f"{ALL_VARIABLE}=1 or scripts/check_releases runs every release")


def search_path(release: str, brought_by: str) -> Path | None:
    """What to put on the search path for a release; None: it is the installed one.

    Args:
        brought_by: script that unpacks releases, named where this one is skipped.
    """
    if installed() is None:
        pytest.skip("SGLang's own dependencies are not installed")
    if release == installed():
        return None
    folder = folder_of(release)
    if folder is None:
        pytest.skip(f"SGLang {release} is not unpacked here; {brought_by} brings it")
    return folder
