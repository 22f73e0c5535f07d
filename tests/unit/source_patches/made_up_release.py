"""A made-up release with two files, and diffs for it, in the place of the real ones."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from sglang_eagle3_probe.source_patches import series
from sglang_eagle3_probe.source_patches.unified import added, parse

RELEASE = "0.5.99"
FILES = {
    "sglang/srt/one.py": b"a = 1\nb = 2\nc = 3\n",
    "sglang/srt/two.py": b"def f():\n    return 1\n",
}
DIFFS = {
    "0001-first": b"""\
What it is for.

--- a/sglang/srt/one.py
+++ b/sglang/srt/one.py
@@ -1,0 +2,2 @@
+x = 1
+y = 2
@@ -3,0 +6 @@
+z = 3
--- a/sglang/srt/two.py
+++ b/sglang/srt/two.py
@@ -0,0 +1 @@
+g = 1
""",
    "0002-second": b"""\
--- a/sglang/srt/one.py
+++ b/sglang/srt/one.py
@@ -2,0 +3 @@
+between = 1
""",
}
PATCHED = {
    "sglang/srt/one.py": b"a = 1\nx = 1\nbetween = 1\ny = 2\nb = 2\nc = 3\nz = 3\n",
    "sglang/srt/two.py": b"g = 1\ndef f():\n    return 1\n",
}


def write_diffs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made-up release's folder, found by the code instead of the real ones."""
    folder = place / "releases" / RELEASE
    folder.mkdir(parents=True)
    for name, diff in DIFFS.items():
        (folder / f"{name}.patch").write_bytes(diff)
    for name, files in (("pristine", FILES), ("patched", PATCHED)):
        lines = [f"{sha256(content).hexdigest()}  {file}\n" for file, content in files.items()]
        (folder / f"{name}.sha256").write_text("".join(lines))
    monkeypatch.setattr(series, "_IN_THE_WHEEL", place / "releases")
    return folder


def write_tree(place: Path, *, version: str | None = RELEASE) -> Path:
    """Site-packages with the made-up SGLang."""
    root = place / "site-packages"
    for file, content in FILES.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(content)
    if version is not None:
        text = f"version: str\n__version__ = version = {version!r}\n"
        (root / "sglang" / "_version.py").write_text(text)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def by_series(file: str) -> bytes:
    """What the diffs make of a file, by the pure functions."""
    content = FILES[file]
    for diff in DIFFS.values():
        for part in parse(diff):
            if part.file == file:
                content = added(part, content)
    return content
