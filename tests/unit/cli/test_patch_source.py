"""What ``patch-source`` says and returns; the work itself is tested in unit/source_patches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sglang_eagle3_probe.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[1] / "source_patches"))

from made_up_release import FILES, PATCHED, write_diffs, write_tree


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_diffs(tmp_path, monkeypatch)
    return write_tree(tmp_path)


def patch_source(root: Path, *more: str) -> int:
    return main(["patch-source", "--sglang-dir", str(root), *more])


def test_there_and_back(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    codes = []
    for more in (["--check"], [], [], ["--check"], ["--reverse"], ["--reverse"], ["--check"]):
        codes.append(patch_source(root, *more))
        said.append(capsys.readouterr().out)
    assert codes == [1, 0, 0, 0, 0, 0, 1]
    assert "SGLang 0.5.99 (from sglang/_version.py)" in said[0]
    assert said[0].count("pristine  sglang/srt/") == 2
    assert "is patched: 0001-first, 0002-second" in said[1]
    assert "restart" in said[1]
    assert "already patched" in said[2]
    assert said[3].count("patched   sglang/srt/") == 2
    assert "as released again" in said[4]
    assert "is not patched; nothing was written" in said[5]
    assert said[6] == said[0]


def test_half_is_not_patched(root: Path) -> None:
    file = next(iter(FILES))
    (root / file).write_bytes(PATCHED[file])
    assert patch_source(root, "--check") == 1


@pytest.mark.parametrize("more", [[], ["--check"], ["--reverse"]])
def test_another_content(root: Path, capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    file = next(iter(FILES))
    (root / file).write_bytes(b"mine\n")
    assert patch_source(root, *more) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"sglang-eagle3-probe: {root / file} is neither")
    if more == ["--check"]:
        assert f"other     {file}" in said.out


def test_a_release_without_diffs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "sglang" / "_version.py").write_text("__version__ = '0.6.0'\n")
    assert patch_source(root) == 2
    assert "no source diffs for SGLang 0.6.0" in capsys.readouterr().err


def test_check_and_reverse_exclude_each_other(root: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        patch_source(root, "--check", "--reverse")
    assert caught.value.code == 2
