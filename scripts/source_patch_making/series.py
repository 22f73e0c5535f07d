"""One release's series of diffs and the digests of the files they touch."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from hashlib import sha256

from sglang_eagle3_probe.source_patches.unified import FileAdditions, Hunk, added

from .additions import SERIES, Addition, Patch
from .anchors import AnchorError

PRISTINE = "pristine.sha256"
PATCHED = "patched.sha256"


class SeriesError(ValueError):
    """A release whose sources the table does not fit."""


def series(release: str, read: Callable[[str], bytes]) -> dict[str, bytes]:
    """File names and contents of a release's folder.

    Args:
        release: version text.
        read: bytes of a file of the release by its path under site-packages.

    Raises:
        SeriesError: a place was not found.
    """
    written: dict[str, bytes] = {}
    pristine: dict[str, bytes] = {}
    now: dict[str, bytes] = {}
    for patch in SERIES:
        here = [a for a in patch.additions if a.releases.contains(release)]
        if not here:
            continue
        parts = []
        for file in dict.fromkeys(a.file for a in here):
            if file not in now:
                now[file] = pristine[file] = read(file)
            try:
                part = _additions(file, now[file], [a for a in here if a.file == file])
                now[file] = added(part, now[file])
                compile(now[file], file, "exec")
            except (AnchorError, SyntaxError) as error:
                raise SeriesError(f"SGLang {release}, {patch.name}, {file}: {error}") from error
            parts.append(part)
        written[f"{patch.name}.patch"] = _text(patch, parts)
    written[PRISTINE] = _digests(pristine)
    written[PATCHED] = _digests(now)
    return written


def _additions(file: str, source: bytes, additions: list[Addition]) -> FileAdditions:
    tree, lines_of_text = ast.parse(source), source.decode().split("\n")
    places: dict[int, list[bytes]] = {}
    for addition in additions:
        line, indent = addition.at.find(tree, lines_of_text)
        text = textwrap.indent(addition.text, " " * indent) + ("\n" if addition.spaced else "")
        places.setdefault(line, []).extend(text.encode().splitlines(keepends=True))
    return FileAdditions(file, tuple(Hunk(n, tuple(lines)) for n, lines in sorted(places.items())))


def _text(patch: Patch, parts: list[FileAdditions]) -> bytes:
    """A unified diff without a line of context, so that nothing of SGLang's stands in it."""
    out = [f"{patch.title}.\n\n".encode()]
    for part in parts:
        out.append(f"--- a/{part.file}\n+++ b/{part.file}\n".encode())
        shift = 0
        for hunk in part.hunks:
            first = hunk.after + shift + 1
            out.append(f"@@ -{hunk.after},0 +{first},{len(hunk.lines)} @@\n".encode())
            out += [b"+" + line for line in hunk.lines]
            shift += len(hunk.lines)
    return b"".join(out)


def _digests(files: dict[str, bytes]) -> bytes:
    """As ``sha256sum`` writes and checks them."""
    return "".join(
        f"{sha256(content).hexdigest()}  {file}\n" for file, content in sorted(files.items())
    ).encode()
