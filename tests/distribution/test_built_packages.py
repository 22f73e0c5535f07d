"""Wheel and sdist: built twice alike, complete, and installable where SGLang is not."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TRACE = ROOT / "tests" / "fixtures" / "traces" / "format-1"


def run(*command: object, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | more
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env=environment,
    )


def checked(*command: object, cwd: Path | None = None) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked_copy(place: Path) -> Path:
    """The files that git has, in another folder and with other times, as somebody's clone."""
    names = checked("git", "-C", ROOT, "ls-files", "-z", "--cached").split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    return place


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two builds of the same files in two places."""
    outputs = []
    for name in ("one", "other"):
        place = tmp_path_factory.mktemp(name)
        source = tracked_copy(place / "source")
        checked(sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", source)
        outputs.append(place / "dist")
    return outputs[0], outputs[1]


def test_two_builds_are_the_same_bytes(built: tuple[Path, Path]) -> None:
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in built
    ]
    assert digests[0] == digests[1]
    assert sorted(name.rsplit(".", 1)[1] for name in digests[0]) == ["gz", "whl"]


def test_contents(built: tuple[Path, Path]) -> None:
    [wheel] = built[0].glob("*.whl")
    [sdist] = built[0].glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "sglang_eagle3_probe").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package <= in_wheel
    assert package <= in_sdist
    patches = {
        path.relative_to(ROOT / "patches").as_posix()
        for path in (ROOT / "patches").rglob("*")
        if path.is_file()
    }
    assert {f"patches/{name}" for name in patches} <= in_sdist
    for needed in ("README.md", "LICENSE", "CHANGELOG.md", "docs/rules/E3P101.md"):
        assert needed in in_sdist
    assert not [name for name in in_wheel | in_sdist if name.startswith(("tests/", "scripts/"))]
    assert any(name.endswith("entry_points.txt") for name in in_wheel)
    assert any(name.endswith("licenses/LICENSE") for name in in_wheel)


@cache
def interpreter(version: str) -> str | None:
    """A Python of this version: on PATH, or pyenv's."""
    found = [shutil.which(f"python{version}")]
    roots = [os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")]
    for root in roots:
        if root:
            found += [
                str(path) for path in Path(root).glob(f"versions/{version}.*/bin/python{version}")
            ]
    for candidate in found:
        # pyenv's shims exist for versions that are not switched on.
        if candidate and run(candidate, "-c", "import venv").returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="module", params=PYTHONS)
def installed(
    request: pytest.FixtureRequest,
    built: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A clean environment with the wheel and its extra for reports; no SGLang, no torch."""
    version = request.param
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    place = tmp_path_factory.mktemp(f"python{version}") / "environment"
    checked(python, "-m", "venv", place)
    [wheel] = built[0].glob("*.whl")
    checked(
        place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        f"{wheel}[report]",
    )  # fmt: skip
    return place


def test_the_reading_side_works_without_sglang(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    probe = installed / "bin" / "sglang-eagle3-probe"
    checked(python, "-m", "pip", "check", "--disable-pip-version-check")
    assert run(python, "-c", "import sglang").returncode != 0
    assert run(python, "-c", "import torch").returncode != 0

    help_text = checked(probe, "--help", cwd=tmp_path)
    assert "doctor" in help_text
    report = run(probe, "report", TRACE, cwd=tmp_path)
    assert report.returncode == 1, report.stderr
    assert "E3P101" in report.stdout
    page = tmp_path / "report.html"
    assert run(probe, "report", TRACE, "--html", page, cwd=tmp_path).returncode == 1
    assert "<html" in page.read_text(encoding="utf-8")[:200]
    for name in ("E3P101", "E3P610"):
        assert name in checked(probe, "explain", name, cwd=tmp_path)
    models = ROOT / "tests" / "fixtures" / "models"
    doctor = run(
        probe, "doctor", "--target", models / "deepseek" / "config.json",
        "--draft", models / "deepseek-draft-embed" / "config.json",
        "--sglang-version", "0.5.23", cwd=tmp_path,
    )  # fmt: skip
    assert doctor.returncode == 1, doctor.stderr
    assert "E3P1" in doctor.stdout


def test_what_needs_more_says_which_extra(installed: Path, tmp_path: Path) -> None:
    probe = installed / "bin" / "sglang-eagle3-probe"
    export = run(probe, "export", TRACE, "--parquet", tmp_path / "out", cwd=tmp_path)
    assert export.returncode == 2
    assert "sglang-eagle3-probe[parquet]" in export.stderr
    assert "Traceback" not in export.stderr


def test_this_environment_is_consistent() -> None:
    """SGLang with its own pins, and the probe, beside each other."""
    uv = shutil.which("uv") or next(
        (str(path) for path in ROOT.glob(".venv*/bin/uv") if path.is_file()), None
    )
    command = (
        [uv, "pip", "check", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "pip", "check"]
    )
    done = run(*command)
    if not uv and "No module named pip" in done.stderr:
        pytest.skip("neither uv nor pip here")
    assert done.returncode == 0, done.stdout + done.stderr
