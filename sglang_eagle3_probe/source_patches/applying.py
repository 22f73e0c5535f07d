"""Puts a series into an SGLang on disk and takes it out again: all files, or none.

Every result is made and its digest compared in memory first. Then it is written beside the file
and put in its place in one step, so that a process that imports SGLang meanwhile sees whole files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Literal

from .series import Series, SourcePatchError
from .tree import FileState, Tree, known_as, states
from .unified import added, removed

Wanted = Literal["pristine", "patched"]


def bring(tree: Tree, series: Series, wanted: Wanted) -> list[str]:
    """Make every file of the series what is wanted.

    Returns:
        The files that were written; none if all were so already.

    Raises:
        SourcePatchError: a file is something else, or cannot be written. Nothing has changed then.
    """
    found = states(tree, series)
    refuse_others(tree, series, found)
    contents: dict[Path, bytes] = {}
    for state in found:
        if state.state != wanted:
            path = tree.root / state.file
            contents[path] = _made(path.read_bytes(), state.file, series, wanted)
    _write_all(contents)
    return [state.file for state in found if state.state != wanted]


def refuse_others(tree: Tree, series: Series, found: list[FileState]) -> None:
    """Raises :class:`SourcePatchError` if a file is neither pristine nor patched."""
    odd = [state for state in found if state.state in ("other", "missing")]
    if not odd:
        return
    told = []
    for state in odd:
        path = tree.root / state.file
        told.append(
            f"{path} is missing."
            if state.state == "missing"
            else f"{path} is neither the file of SGLang {series.release} nor that file patched: "
            f"sha256 {state.digest} found, {series.pristine[state.file]} (pristine) or "
            f"{series.patched[state.file]} (patched) expected." + known_as(state.file, state.digest)
        )
    raise SourcePatchError(
        " ".join(told) + f" The release was read from {tree.said_by}. Nothing was written. Fix: "
        f"start from the release's own files (pip install --force-reinstall --no-deps "
        f"sglang=={series.release}), or let the plugin patch at run time (--enable-probe)"
    )


def _made(content: bytes, file: str, series: Series, wanted: Wanted) -> bytes:
    parts = series.of_file(file)
    if wanted == "patched":
        for part in parts:
            content = added(part, content)
    else:
        for part in reversed(parts):
            content = removed(part, content)
    expected = (series.patched if wanted == "patched" else series.pristine)[file]
    digest = sha256(content).hexdigest()
    if digest != expected:
        raise SourcePatchError(
            f"the diffs of SGLang {series.release} make {file} sha256 {digest}, expected "
            f"{expected}. Nothing was written. Fix: reinstall sglang-eagle3-probe, its own files "
            "are damaged"
        )
    return content


def _write_all(contents: dict[Path, bytes]) -> None:
    waiting: dict[Path, Path] = {}
    before: dict[Path, bytes] = {}
    path = Path()
    try:
        for path, content in contents.items():
            waiting[path] = _beside(path, content)
        for path, new in waiting.items():
            before[path] = path.read_bytes()
            os.replace(new, path)
    except OSError as error:
        before.pop(path, None)
        for done, old in before.items():
            os.replace(_beside(done, old), done)
        raise SourcePatchError(
            f"{path} cannot be written: {error.strerror}. Nothing was changed. Fix: run this as "
            "the user who owns the files, or in the image's build"
        ) from error
    finally:
        for new in waiting.values():
            with contextlib.suppress(OSError):
                new.unlink()


def _beside(path: Path, content: bytes) -> Path:
    """A file of the same mode and owner next to another, complete on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, new)
        status = path.stat()
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.chown(new, status.st_uid, status.st_gid)
    except OSError:
        new.unlink()
        raise
    return new
