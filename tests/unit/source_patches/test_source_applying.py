from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from made_up_release import FILES, PATCHED, RELEASE, contents, write_diffs, write_tree

from sglang_eagle3_probe.source_patches.applying import bring
from sglang_eagle3_probe.source_patches.series import SourcePatchError, load
from sglang_eagle3_probe.source_patches.tree import find

ONE, TWO = FILES


@pytest.fixture(autouse=True)
def diffs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_diffs(tmp_path, monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path)


def apply(root: Path) -> list[str]:
    return bring(find(root), load(RELEASE), "patched")


def reverse(root: Path) -> list[str]:
    return bring(find(root), load(RELEASE), "pristine")


def test_apply_and_reverse_are_exact_and_idempotent(root: Path) -> None:
    before = contents(root)
    assert apply(root) == [ONE, TWO]
    assert {f: (root / f).read_bytes() for f in FILES} == PATCHED
    patched = contents(root)
    stamps = {f: (root / f).stat().st_mtime_ns for f in FILES}
    assert apply(root) == []
    assert {f: (root / f).stat().st_mtime_ns for f in FILES} == stamps
    assert contents(root) == patched
    assert reverse(root) == [ONE, TWO]
    assert contents(root) == before
    assert reverse(root) == []


def test_the_mode_is_kept(root: Path) -> None:
    (root / ONE).chmod(0o640)
    apply(root)
    assert stat.S_IMODE((root / ONE).stat().st_mode) == 0o640


def test_a_hard_link_elsewhere_keeps_the_released_bytes(root: Path, tmp_path: Path) -> None:
    """uv links site-packages to its cache, which serves other environments."""
    cached = tmp_path / "cached.py"
    os.link(root / ONE, cached)
    apply(root)
    assert cached.read_bytes() == FILES[ONE]


def test_half_of_a_series_is_completed_or_taken_out(root: Path) -> None:
    (root / ONE).write_bytes(PATCHED[ONE])
    assert apply(root) == [TWO]
    (root / TWO).write_bytes(FILES[TWO])
    assert reverse(root) == [ONE]


@pytest.mark.parametrize("file", list(FILES))
@pytest.mark.parametrize("action", [apply, reverse])
def test_another_content_is_left_alone(root: Path, file: str, action: Any) -> None:
    (root / file).write_bytes(b"somebody was here\n")
    before = contents(root)
    with pytest.raises(SourcePatchError) as caught:
        action(root)
    message = str(caught.value)
    for words in (str(root / file), "found", "pristine", "expected", "sglang/_version.py", "Fix:"):
        assert words in message
    assert contents(root) == before


def test_a_missing_file_is_named(root: Path) -> None:
    (root / TWO).unlink()
    with pytest.raises(SourcePatchError, match=r"two\.py is missing"):
        apply(root)
    assert (root / ONE).read_bytes() == FILES[ONE]


def test_the_release_of_a_foreign_file_is_named(root: Path, diffs: Path) -> None:
    other = diffs.parent / "0.5.98"
    other.mkdir()
    for path in diffs.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    digest = load(RELEASE).pristine[ONE]
    for path in diffs.glob("*.sha256"):
        path.write_text(path.read_text().replace(digest, "0" * 64))
    with pytest.raises(SourcePatchError, match=r"It is the file of SGLang 0\.5\.98\."):
        apply(root)


def test_damaged_diffs_write_nothing(root: Path, diffs: Path) -> None:
    path = diffs / "0002-second.patch"
    path.write_bytes(path.read_bytes().replace(b"between", b"betwixt"))
    before = contents(root)
    with pytest.raises(SourcePatchError, match="its own files are damaged"):
        apply(root)
    assert contents(root) == before


def refuses(number: int, real: Any) -> Any:
    """``real``, but the call of this number meets a read-only disk."""
    calls = iter(range(1, 100))

    def called(*given: Any, **named: Any) -> Any:
        if next(calls) == number:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(*given, **named)

    return called


@pytest.mark.parametrize(
    ("where", "name", "number"),
    [(os, "replace", 1), (os, "replace", 2), (tempfile, "mkstemp", 1), (tempfile, "mkstemp", 2)],
)
@pytest.mark.parametrize(("action", "start"), [(apply, FILES), (reverse, PATCHED)])
def test_what_cannot_be_written_leaves_everything_as_it_was(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    number: int,
    action: Any,
    start: dict[str, bytes],
) -> None:
    for file, content in start.items():
        (root / file).write_bytes(content)
    before = contents(root)
    monkeypatch.setattr(where, name, refuses(number, getattr(where, name)))
    failing = (ONE, TWO)[number - 1]
    with pytest.raises(SourcePatchError) as caught:
        action(root)
    assert contents(root) == before
    message = str(caught.value)
    assert str(root / failing) in message
    assert "Read-only file system" in message
    assert "Nothing was changed. Fix:" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else(root: Path) -> None:
    folder = (root / ONE).parent
    folder.chmod(0o555)
    try:
        with pytest.raises(SourcePatchError, match="Permission denied"):
            apply(root)
    finally:
        folder.chmod(0o755)
    assert (root / ONE).read_bytes() == FILES[ONE]
