"""Gzipped files of strangers, unpacked into a temporary file within bounds."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import opened, shown

UNPACKED_LIMIT = 8 << 30
RATIO_LIMIT = 100
"""Hidden states shrink by a third at most; only zeros and bombs shrink a hundredfold."""
FREE_OF_RATIO = 16 << 20
CHUNK = 1 << 20


@contextmanager
def unpacked(path: Path, *, limit_bytes: int = UNPACKED_LIMIT) -> Iterator[Path]:
    """A temporary file with what is in ``path``; gone when the block ends.

    Raises:
        CheckpointError: it is damaged, or unpacks to more than ``limit_bytes``, or to more than
            ``RATIO_LIMIT`` times its size.
    """
    with opened(path) as (file, size), tempfile.NamedTemporaryFile(suffix=".unpacked") as out:
        most = min(limit_bytes, max(FREE_OF_RATIO, RATIO_LIMIT * size))
        done = 0
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as packed:
                while chunk := packed.read(CHUNK):
                    done += len(chunk)
                    if done > most:
                        raise CheckpointError(
                            f"{shown(path)} unpacks to more than {most} bytes from {size}, which "
                            "hidden states do not. Fix: unpack it yourself if you trust it."
                        )
                    out.write(chunk)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise CheckpointError(
                f"{shown(path)} is a damaged or cut off gzip file. Fix: give a whole file."
            ) from None
        out.flush()
        yield Path(out.name)
