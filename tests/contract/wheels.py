"""Sources of SGLang releases, cut out of their wheels.

A wheel is downloaded with pip, the few files that are asked for are kept, and the wheel is deleted:
the cache holds some 2 MB a release, and a warm run needs no network. ``EAGLE3_PROBE_WHEEL_CACHE``
moves it from ``~/.cache/sglang-eagle3-probe/wheels``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CACHE_VARIABLE = "EAGLE3_PROBE_WHEEL_CACHE"

Say = Callable[[str], None]

_INDEX = "index.json"
_AT_ONCE = 4
_GIVE_UP_AFTER = 2
_SECONDS_PER_WHEEL = 300


class WheelsUnavailable(RuntimeError):
    """A wheel could not be had: no pip, no network, or no such release."""


def cache_folder() -> Path:
    """Where the sources are kept."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".cache" / "sglang-eagle3-probe" / "wheels"


def member_names(module: str) -> tuple[str, str]:
    """The two files of a wheel that can hold a dotted module."""
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def fetch(
    releases: Sequence[str], modules: Iterable[str], say: Say = print
) -> dict[str, Path | WheelsUnavailable]:
    """Bring the named modules of the named releases into the cache.

    Args:
        releases: version texts.
        modules: dotted modules; one that a release lacks is simply not there afterwards.
        say: takes progress messages. Silent when everything is in the cache.

    Returns:
        For each release the folder that stands for the wheel's root, or why there is none. After
        a few failures the rest is not tried, so that being offline does not cost minutes.
    """
    wanted = sorted(set(modules))
    cache = cache_folder()
    found: dict[str, Path | WheelsUnavailable] = {
        release: cache / release for release in releases if _holds(cache / release, wanted)
    }
    missing = [release for release in releases if release not in found]
    if not missing:
        return found
    say(f"Downloading {len(missing)} SGLang wheels for the sources in {cache} (about a minute) ...")
    failures: list[WheelsUnavailable] = []
    done: list[str] = []

    def bring(release: str) -> Path | WheelsUnavailable:
        if len(failures) >= _GIVE_UP_AFTER:
            return failures[0]
        try:
            folder = _bring(release, wanted, cache)
        except WheelsUnavailable as error:
            failures.append(error)
            return error
        done.append(release)
        say(f"  sglang {release} ({len(done)}/{len(missing)})")
        return folder

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found.update(zip(missing, pool.map(bring, missing), strict=True))
    return found


def published(name: str = "sglang") -> list[str]:
    """Final and post-releases that the package index offers, newest first."""
    text = _run(
        [*_pip(), "index", "versions", "--retries", "1", "--timeout", "10", name],
        f"the index's list of {name} releases",
    )
    for line in text.splitlines():
        if line.startswith("Available versions:"):
            return [part.strip() for part in line.partition(":")[2].split(",")]
    raise WheelsUnavailable(f"pip index versions {name} listed nothing")


def whole_folder(release: str) -> Path:
    """Where a release lies unpacked as a whole, if a script has brought it."""
    return cache_folder().parent / "whole" / release


def _holds(folder: Path, modules: Sequence[str]) -> bool:
    """Whether a cache folder was cut with these modules (or more) asked for."""
    return set(modules) <= set(_asked(folder))


def _asked(folder: Path) -> list[str]:
    try:
        return list(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["asked"])
    except (OSError, ValueError, KeyError):
        return []


def _bring(release: str, modules: Sequence[str], cache: Path) -> Path:
    """Download one wheel, keep the modules, put the folder in place in one step.

    What was asked for earlier is kept too: another branch may ask for other modules.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{release}-") as work:
            folder, cut = cache / release, Path(work) / "cut"
            modules = sorted({*modules, *_asked(folder)})
            whole = whole_folder(release)
            if whole.is_dir():
                _copy(whole, modules, cut)
            else:
                _cut(download(release, Path(work)), modules, cut)
            if folder.exists():
                shutil.rmtree(folder)
            cut.rename(folder)
    except OSError as error:
        if _holds(cache / release, modules):  # another process was faster
            return cache / release
        raise WheelsUnavailable(f"sglang {release}: {error}") from error
    return folder


def _cut(wheel: Path, modules: Sequence[str], into: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        members = [n for module in modules for n in member_names(module) if n in names]
        archive.extractall(into, members)
    into.mkdir(exist_ok=True)
    (into / _INDEX).write_text(json.dumps({"asked": list(modules)}), encoding="utf-8")


def _copy(whole: Path, modules: Sequence[str], into: Path) -> None:
    for module in modules:
        for name in member_names(module):
            if (whole / name).is_file():
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(whole / name, into / name)
    into.mkdir(exist_ok=True)
    (into / _INDEX).write_text(json.dumps({"asked": list(modules)}), encoding="utf-8")


def download(release: str, into: Path) -> Path:
    """A release's whole wheel, put into a folder; raises :class:`WheelsUnavailable`."""
    # Any Linux tag will do, whatever runs this: only the Python files are read.
    platforms = ["manylinux1", "manylinux2010", "manylinux2014"]
    platforms += [f"manylinux_2_{minor}" for minor in range(5, 46)]
    command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", "--retries", "2"]
    command += ["--timeout", "20", "--no-cache-dir", "--dest", str(into)]
    command += [f"--platform={platform}_x86_64" for platform in platforms]
    _run([*command, f"sglang=={release}"], f"sglang {release}")
    wheels = list(into.glob("*.whl"))
    if not wheels:
        raise WheelsUnavailable(f"sglang {release}: pip wrote no wheel")
    return wheels[0]


def _run(command: Sequence[str], what: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS_PER_WHEEL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WheelsUnavailable(f"{what}: {error}") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise WheelsUnavailable(f"{what}: {errors[-1] if errors else done.stderr.strip()}")
    return done.stdout


def _pip() -> list[str]:
    """A pip to download with: this interpreter's, one on the path, or one that uv runs."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if path := shutil.which(name):
            return [path]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    raise WheelsUnavailable("no pip found, and no uv to run one")
