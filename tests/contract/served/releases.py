"""Whole SGLang releases to ask: the installed one, and others unpacked from their wheels."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

from contract.wheels import download, whole_folder

ASKED = ("0.5.12.post1", "0.5.17", "0.5.21", "0.5.23")
"""Before and after the readings of layer ids changed, and the newest known."""


def installed() -> str | None:
    """The SGLang of this environment."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def folder_of(release: str, *, fetch: bool = False) -> Path | None:
    """What to put on the search path for a release; None: it is not here.

    Whole wheels lie beside the cut ones; 30 to 100 MB each, so only a script brings them.
    """
    folder = whole_folder(release)
    if folder.is_dir() or not fetch:
        return folder if folder.is_dir() else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        wheel = download(release, Path(work))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(work) / "all")
        shutil.move(str(Path(work) / "all"), folder)
    return folder
