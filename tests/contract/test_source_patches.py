"""The committed source diffs against the files of every release."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_eagle3_probe.source_patches.applying import bring
from sglang_eagle3_probe.source_patches.series import folder, load
from sglang_eagle3_probe.source_patches.tree import find, states

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from source_patch_making.series import SeriesError, series  # noqa: E402

from .conftest import unavailable  # noqa: E402
from .releases import RELEASES  # noqa: E402
from .wheels import WheelsUnavailable  # noqa: E402

Copy = Callable[[str], Path]


@pytest.fixture
def pristine(wheel_folders: dict[str, Path | WheelsUnavailable], tmp_path: Path) -> Copy:
    """A release's touched files, to write on."""

    def copied(release: str) -> Path:
        source = wheel_folders[release]
        if isinstance(source, WheelsUnavailable):
            unavailable(source)
        for file in load(release).pristine:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / file, tmp_path / file)
        return tmp_path

    return copied


def read(root: Path, release: str) -> dict[str, bytes]:
    return {file: (root / file).read_bytes() for file in load(release).pristine}


def found(root: Path, release: str) -> set[str]:
    return {state.state for state in states(find(root), load(release))}


@pytest.mark.parametrize("release", RELEASES)
def test_the_generator_makes_what_is_committed(release: str, pristine: Copy) -> None:
    root = pristine(release)
    made = series(release, lambda file: (root / file).read_bytes())
    place = folder() / release
    assert made == {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("release", RELEASES)
def test_there_and_back_is_exact(release: str, pristine: Copy) -> None:
    root, whole = pristine(release), load(release)
    before = read(root, release)
    assert found(root, release) == {"pristine"}
    assert bring(find(root), whole, "patched") == list(whole.pristine)
    assert found(root, release) == {"patched"}
    assert bring(find(root), whole, "patched") == []
    assert bring(find(root), whole, "pristine") == list(whole.pristine)
    assert read(root, release) == before


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_of_sglang_stands_in_a_diff(release: str, pristine: Copy) -> None:
    root = pristine(release)
    theirs = {
        line.strip() for content in read(root, release).values() for line in content.splitlines()
    }
    for path in (folder() / release).glob("*.patch"):
        title, blank, *lines = path.read_bytes().splitlines()
        assert title
        assert not blank
        for line in lines:
            assert line.startswith((b"--- a/", b"+++ b/", b"@@ -", b"+")), line
            if line.startswith(b"@@"):
                assert line.endswith(b" @@"), line
            elif not line.startswith((b"---", b"+++")):
                own = line[1:].strip()
                assert own not in theirs or own in (b"", b")"), own


@pytest.mark.parametrize("tool", ["patch", "git"])
@pytest.mark.parametrize("release", RELEASES)
def test_other_tools_make_the_same_of_it(release: str, tool: str, pristine: Copy) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    root = pristine(release)
    diffs = sorted((folder() / release).glob("*.patch"))
    for diff in diffs:
        command = (
            ["patch", "-p1", "-i", str(diff)]
            if tool == "patch"
            else ["git", "apply", "--unidiff-zero", str(diff)]
        )
        subprocess.run(command, cwd=root, check=True, capture_output=True)
    assert found(root, release) == {"patched"}


def test_a_release_whose_places_moved_is_named(pristine: Copy) -> None:
    root = pristine("0.5.23")
    for file in load("0.5.23").pristine:
        text = (root / file).read_text().replace("def set_eagle3_layers_to_capture", "def moved")
        (root / file).write_text(text)
    with pytest.raises(SeriesError, match=r"0\.5\.23, 0001-embedding-capture, .*0 definitions of"):
        series("0.5.23", lambda file: (root / file).read_bytes())


@pytest.mark.parametrize("configured", [[-1, 2, 5], None])
@pytest.mark.parametrize("release", [r for r in RELEASES if len(load(r).diffs) == 3])
def test_graphs_are_captured_with_the_configured_ids(
    release: str, configured: list[int] | None, pristine: Copy
) -> None:
    """The statement of the graph runner's constructor that sets the ids, run by itself."""
    root = pristine(release)
    file = "sglang/srt/model_executor/cuda_graph_runner.py"

    def last_set() -> list[int] | None:
        tree = ast.parse((root / file).read_bytes())
        [constructor] = [
            node
            for cls in tree.body
            if isinstance(cls, ast.ClassDef) and cls.name == "CudaGraphRunner"
            for node in cls.body
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        ]
        [statement] = [
            node
            for node in constructor.body
            if isinstance(node, ast.If) and "set_eagle3_layers_to_capture" in ast.unparse(node)
        ]
        calls: list[list[int] | None] = []
        runner = SimpleNamespace(
            spec_algorithm=SimpleNamespace(is_eagle3=lambda: True),
            eagle_use_aux_hidden_state=True,
            eagle_aux_hidden_state_layer_ids=configured,
            model=SimpleNamespace(set_eagle3_layers_to_capture=lambda ids=None: calls.append(ids)),
        )
        space = {"self": SimpleNamespace(model_runner=runner), "model_runner": runner}
        exec(compile(ast.Module([statement], []), file, "exec"), space)
        return calls[-1]

    assert last_set() is None
    bring(find(root), load(release), "patched")
    assert last_set() == configured
