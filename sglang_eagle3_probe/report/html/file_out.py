"""Puts the page where it was asked for: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class PageError(Exception):
    """The page cannot be written there. The message says why, and a fix."""


def write_page(text: str, place: Path) -> None:
    """Write a file in one step; an older one of that name is replaced.

    The file gets the permissions that the user's umask gives new files.

    Raises:
        PageError: the place is a folder, or cannot be written.
    """
    if place.is_dir():
        raise PageError(f"{place} is a folder. Fix: name a file, such as {place / 'report.html'}.")
    partial = ""
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{place.name[:100]}.", dir=place.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, place)
    except OSError as error:
        if partial:
            Path(partial).unlink(missing_ok=True)
        raise PageError(
            f"{place} could not be written ({error.strerror or error}); no half of a page was "
            "left. Fix: name a file in a folder that exists and that this user may write to."
        ) from None


def _umask() -> int:
    # It can only be read by setting it; the command line has no other thread to be surprised.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
