"""Opening files of a checkpoint that may be broken or hostile."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from sglang_eagle3_probe.checkpoint.facts import CheckpointError

CONFIG_LIMIT = 16 << 20
INDEX_LIMIT = 100 << 20
REASONS = {
    errno.ENOENT: "does not exist",
    errno.EACCES: "may not be read by this user",
    errno.EPERM: "may not be read by this user",
    errno.ELOOP: "is a symbolic link in a circle",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.EISDIR: "is a folder",
    errno.ENOTDIR: "lies in something that is not a folder",
}


def shown(path: object) -> str:
    """A path or a name in one printable line, whatever is in it."""
    text = "".join(c if c.isprintable() else "?" for c in str(path))
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"


def trouble(path: object, error: OSError | ValueError) -> CheckpointError:
    """An operating system's refusal in one line."""
    number = error.errno if isinstance(error, OSError) else None
    reason = REASONS.get(number or 0) or (
        (error.strerror or "cannot be read").lower() if isinstance(error, OSError) else ""
    )
    return CheckpointError(f"{shown(path)} {reason or 'is not a valid file name'}.")


def inside(root: Path, path: Path) -> Path:
    """The real file behind a path in a checkpoint; refuses links that lead out of it.

    The Hugging Face cache is the exception: its snapshots link to ``blobs`` of the same repository.
    """
    try:
        real = path.resolve(strict=True)
        real_root = root.resolve(strict=True)
    except RuntimeError:  # before Python 3.13, a circle of links
        raise CheckpointError(f"{shown(path)} is a symbolic link in a circle.") from None
    except (OSError, ValueError) as error:
        raise trouble(path, error) from None
    if real.is_relative_to(real_root):
        return real
    blobs = blobs_of(real_root)
    if blobs is not None and real.is_relative_to(blobs):
        return real
    raise CheckpointError(
        f"{shown(path)} is a symbolic link out of the checkpoint, to {shown(real)}; only links "
        "into the blobs of the same Hugging Face cache entry are followed. Fix: copy the file "
        "into the folder, or name the folder that really holds it."
    )


def blobs_of(real_root: Path) -> Path | None:
    """``blobs`` beside ``snapshots/<revision>``, for a folder at or below a cache snapshot."""
    chain = [real_root, *real_root.parents]
    for folder, parent in pairwise(chain):
        if parent.name == "snapshots" and folder != parent:
            return parent.parent / "blobs"
    return None


@contextmanager
def opened(path: Path, *, name: object = None) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file and its size. Pipes and devices are refused, not waited for."""
    label = name if name is not None else path
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise trouble(label, error) from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise CheckpointError(f"{shown(label)} is not a regular file.")
    with os.fdopen(handle, "rb", buffering=0) as raw:
        try:
            yield raw, status.st_size
        except OSError as error:
            raise trouble(label, error) from None


def read_exactly(file: BinaryIO, start: int, count: int) -> bytes:
    """So many bytes, fewer only where the file ends."""
    file.seek(start)
    parts: list[bytes] = []
    while count > 0:
        part = file.read(min(count, 1 << 24))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def parse_object(data: bytes, label: object) -> dict[str, Any]:
    """A JSON object out of bytes."""
    try:
        found = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{shown(label)} is not UTF-8 text (byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{shown(label)} is not valid JSON: {error.msg} at line {error.lineno}, "
            f"column {error.colno}."
        ) from None
    except RecursionError:
        raise CheckpointError(
            f"{shown(label)} is nested too deeply to be a model's JSON."
        ) from None
    except ValueError:  # an integer with thousands of digits
        raise CheckpointError(f"{shown(label)} holds a number that is too long.") from None
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{shown(label)} holds a JSON {type(found).__name__}, expected an object."
        )
    return found


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """A JSON file that must hold an object."""
    with opened(path) as (file, size):
        if size > limit:
            raise CheckpointError(
                f"{shown(path)} is {size >> 20} MB, expected at most {limit >> 20} MB for such a "
                "file. Fix: is it really what its name says?"
            )
        data = read_exactly(file, 0, min(size, limit))
    return parse_object(data, path)
