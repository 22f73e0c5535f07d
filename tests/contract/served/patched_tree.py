"""A release on disk with the source diffs in it: links to everything that they do not touch."""

from __future__ import annotations

from importlib import util
from pathlib import Path

from sglang_eagle3_probe.source_patches.applying import bring
from sglang_eagle3_probe.source_patches.series import load
from sglang_eagle3_probe.source_patches.tree import find


def overlay(release: str, package_folder: Path, place: Path) -> Path:
    """``place`` as a search path entry with the package ``sglang``, pristine.

    Args:
        package_folder: the folder that holds the release's ``sglang``; only read.
    """
    touched = load(release).pristine
    real = {parent for file in touched for parent in Path(file).parents} - {Path()}
    for folder in sorted({Path("."), *real}):
        (place / folder).mkdir(parents=True, exist_ok=True)
        names = ["sglang"] if folder == Path(".") else _names(package_folder / folder)
        for name in names:
            part = folder / name
            if part in real:
                continue
            if str(part) in touched:
                (place / part).write_bytes((package_folder / part).read_bytes())
            else:
                (place / part).symlink_to(package_folder / part)
    return place


def patched(release: str, package_folder: Path, place: Path) -> Path:
    """The overlay with the whole series applied."""
    tree = find(overlay(release, package_folder, place))
    assert bring(tree, load(release), "patched")
    return place


def installed_folder() -> Path:
    """The folder that holds this environment's ``sglang``."""
    spec = util.find_spec("sglang")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]).parent


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != "__pycache__"]
