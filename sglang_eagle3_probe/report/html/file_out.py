"""Puts the page where it was asked for: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class PageError(Exception):
    """The page cannot be written there. The message says why, and a fix."""


def check_place(place: Path) -> None:
    """See that a page can go there, before hours of traces are read for it.

    Raises:
        PageError: the place is a folder, or its folder does not exist or may not be written to.
    """
    if place.is_dir():
        raise PageError(f"{place} is a folder. Fix: name a file, such as {place / 'report.html'}.")
    folder = place.parent
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise PageError(
            f"{place} cannot be written: {folder} {what}. Fix: make it, or name another."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PageError(
            f"{place} cannot be written: this user may not write to {folder}. Fix: name a file in "
            "a folder of your own."
        )


def write_page(text: str, place: Path) -> None:
    """Write a file in one step; an older one of that name is replaced.

    The file gets the permissions that the user's umask gives new files.

    Raises:
        PageError: the place is a folder, or cannot be written.
    """
    check_place(place)
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
