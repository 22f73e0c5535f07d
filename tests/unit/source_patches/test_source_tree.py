from __future__ import annotations

from pathlib import Path

import pytest
from made_up_release import PATCHED, RELEASE, write_diffs, write_tree

from sglang_eagle3_probe.source_patches.series import SourcePatchError, load, releases
from sglang_eagle3_probe.source_patches.tree import find


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_diffs(tmp_path, monkeypatch)


def test_site_packages_the_package_and_a_checkout(tmp_path: Path) -> None:
    root = write_tree(tmp_path)
    assert find(root).root == root
    assert find(root / "sglang").root == root
    root.rename(tmp_path / "python")
    assert find(tmp_path).root == tmp_path / "python"


def test_a_folder_beside_the_package_is_not_taken_for_it(tmp_path: Path) -> None:
    (write_tree(tmp_path) / "torch").mkdir()
    with pytest.raises(SourcePatchError, match=r"no sglang/srt in .*torch\. Fix:"):
        find(tmp_path / "site-packages" / "torch")


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SourcePatchError, match=r"nowhere is not a folder\. Fix:"):
        find(tmp_path / "nowhere")


def test_where_the_release_is_read(tmp_path: Path, made_up: None) -> None:
    root = write_tree(tmp_path, version=None)
    (root / "sglang" / "version.py").write_text("import x\n__version__ = x.version()\n")
    assert (find(root).release, find(root).said_by) == (RELEASE, "the content of its files")
    for file, content in PATCHED.items():
        (root / file).write_bytes(content)
    assert find(root).release == RELEASE
    (root / "sglang" / "_version.py").write_text("__version__ = '0.0.0.dev1+gabc'\n")
    assert find(root).release == RELEASE
    (root / "sglang-0.5.98.dist-info").mkdir()
    (root / "sglang_eagle3_probe-9.9.9.dist-info").mkdir()
    assert (find(root).release, find(root).said_by) == ("0.5.98", "sglang-0.5.98.dist-info")
    (root / "sglang" / "_version.py").write_text("__version__ = version = '0.5.97'\n")
    assert (find(root).release, find(root).said_by) == ("0.5.97", "sglang/_version.py")


def test_nothing_says_the_release(tmp_path: Path, made_up: None) -> None:
    root = write_tree(tmp_path, version=None)
    (root / "sglang" / "srt" / "one.py").write_text("other = 1\n")
    with pytest.raises(SourcePatchError, match="says which SGLang it is"):
        find(root)


@pytest.mark.parametrize(
    "release", ["0.5.98", "0.5.99.dev1+gabc", "0.5.99rc1", "main", "0.5.99.post1"]
)
def test_a_release_without_diffs(made_up: None, release: str) -> None:
    with pytest.raises(SourcePatchError, match="no source diffs for SGLang") as caught:
        load(release)
    assert release in str(caught.value)
    assert "0.5.99 to 0.5.99" in str(caught.value)
    assert "Fix:" in str(caught.value)


@pytest.mark.parametrize("release", ["0.5.99", "v0.5.99", "0.5.99+cu129"])
def test_a_build_of_a_release_is_that_release(made_up: None, release: str) -> None:
    assert load(release).release == RELEASE


def test_the_real_ones_are_found_in_a_checkout() -> None:
    found = releases()
    assert found[0] == "0.5.9"
    assert found.index("0.5.10") < found.index("0.5.10.post1") < found.index("0.5.11")
    for release in found:
        series = load(release)
        assert series.names[:2] == ("0001-embedding-capture", "0002-capture-order")
        assert ("0003-verify-graph-ids" in series.names) == (found.index(release) < 3)
