"""The files of an SGLang on disk: where they are, which release they say they are, what they hold.

SGLang is not imported: the folder may be another interpreter's, or an image that is being built.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from .series import Series, SourcePatchError, load, releases

_NO_VERSION = "0.0.0"
"""What SGLang's build writes where it has no tag to read."""

State = Literal["pristine", "patched", "other", "missing"]


@dataclass(frozen=True)
class Tree:
    """An SGLang on disk.

    Args:
        root: the folder that holds ``sglang``: site-packages, or ``python`` of a checkout.
        release: what it says it is, or the release whose files it holds.
        said_by: where that was read.
    """

    root: Path
    release: str
    said_by: str


@dataclass(frozen=True)
class FileState:
    """What one file of a series is.

    Args:
        file: path under the tree's root.
        digest: sha256 found, or "" when it is missing.
    """

    file: str
    state: State
    digest: str


def find(directory: Path) -> Tree:
    """The SGLang in a folder: site-packages, the package itself, or a checkout or its ``python``.

    Raises:
        SourcePatchError: there is none, or nothing says its release.
    """
    if not directory.is_dir():
        raise SourcePatchError(f"{directory} is not a folder. Fix: {_WHICH_FOLDER}")
    for root in (directory, directory.parent, directory / "python"):
        if (root / "sglang" / "srt").is_dir() and (
            root != directory.parent or directory.name == "sglang"
        ):
            break
    else:
        raise SourcePatchError(f"no sglang/srt in {directory}. Fix: {_WHICH_FOLDER}")
    said = _written_version(root) or _distribution(root) or _by_content(root)
    if said is None:
        raise SourcePatchError(
            f"nothing in {root} says which SGLang it is: no sglang/_version.py, no sglang-*."
            "dist-info beside the package, and its files are those of no release with source "
            "diffs. Nothing was written. Fix: check out the tag of a release"
        )
    return Tree(root, *said)


_WHICH_FOLDER = (
    "name the folder that holds the package sglang, as printed by: pip show sglang, in its line "
    "Location"
)


def states(tree: Tree, series: Series) -> list[FileState]:
    """What each file of the series is; reads every one.

    Raises:
        SourcePatchError: a file cannot be read.
    """
    return [_state(tree.root, file, series) for file in series.pristine]


def known_as(file: str, digest: str) -> str:
    """The release whose file this content is, as a sentence, or nothing."""
    for release in reversed(releases()):
        series = load(release)
        for digests, how in ((series.pristine, ""), (series.patched, ", patched")):
            if digests.get(file) == digest:
                return f" It is the file of SGLang {release}{how}."
    return ""


def _state(root: Path, file: str, series: Series) -> FileState:
    try:
        digest = sha256((root / file).read_bytes()).hexdigest()
    except FileNotFoundError:
        return FileState(file, "missing", "")
    except OSError as error:
        raise SourcePatchError(
            f"{root / file} cannot be read: {error.strerror}. Nothing was written. Fix: run this "
            "as the user who owns the files"
        ) from error
    if digest == series.pristine[file]:
        return FileState(file, "pristine", digest)
    return FileState(file, "patched" if digest == series.patched[file] else "other", digest)


def _written_version(root: Path) -> tuple[str, str] | None:
    """``__version__`` of the file that SGLang's build writes, or of an older ``version.py``."""
    for name in ("_version.py", "version.py"):
        path = root / "sglang" / name
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == "__version__" for t in node.targets)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
                and not node.value.value.startswith(_NO_VERSION)
            ):
                return node.value.value, f"sglang/{name}"
    return None


def _distribution(root: Path) -> tuple[str, str] | None:
    """The version of a wheel's metadata beside the package."""
    for path in sorted(root.glob("sglang-*.dist-info")):
        return path.name.removeprefix("sglang-").removesuffix(".dist-info"), path.name
    return None


def _by_content(root: Path) -> tuple[str, str] | None:
    """The newest release whose files these are: a checkout of a tag need not be built."""
    for release in reversed(releases()):
        series = load(release)
        if all(_state(root, f, series).state in ("pristine", "patched") for f in series.pristine):
            return release, "the content of its files"
    return None
