"""The diffs of each release, as the wheel or a checkout carries them.

A release's folder holds the diffs, applied in the order of their names, and two lists in the
format of ``sha256sum``: what the touched files are before (``pristine.sha256``) and after
(``patched.sha256``) the whole series.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .unified import FileAdditions, files_of, parse

_IN_THE_WHEEL = Path(__file__).parent / "releases"
_IN_A_CHECKOUT = Path(__file__).parents[2] / "patches" / "sglang"

_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?(?:\+[a-z0-9.]+)?")

NO_RELEASE = (
    "Fix: use one of those releases, or let the plugin patch at run time (--enable-probe), which "
    "does the same"
)


class SourcePatchError(Exception):
    """Nothing was changed, or all of it was put back. The message says why, and a fix."""


@dataclass(frozen=True)
class Series:
    """All diffs of one release.

    Args:
        release: version text.
        names: of the diffs, in the order of application.
        diffs: what each adds.
        pristine: path under the folder that holds ``sglang`` -> sha256 before.
        patched: the same after.
    """

    release: str
    names: tuple[str, ...]
    diffs: tuple[tuple[FileAdditions, ...], ...]
    pristine: dict[str, str]
    patched: dict[str, str]

    def of_file(self, file: str) -> list[FileAdditions]:
        """What the series does to one file, in the order of application."""
        return [part for diff in self.diffs for part in diff if part.file == file]


def folder() -> Path:
    """Where the releases' folders are."""
    return _IN_THE_WHEEL if _IN_THE_WHEEL.is_dir() else _IN_A_CHECKOUT


def releases() -> list[str]:
    """Releases with diffs, oldest first."""
    place = folder()
    found = {_numbers(p.name): p.name for p in place.iterdir()} if place.is_dir() else {}
    return [found[numbers] for numbers in sorted(n for n in found if n is not None)]


def load(release: str) -> Series:
    """The series of a release; a local part (``+cu129``) is left out, since digests decide.

    Raises:
        SourcePatchError: there is none.
    """
    known = releases()
    numbers = _numbers(release)
    name = next((n for n in known if numbers is not None and _numbers(n) == numbers), None)
    if name is None:
        have = f"{known[0]} to {known[-1]}" if known else "no release (the package is incomplete)"
        raise SourcePatchError(
            f"there are no source diffs for SGLang {release}; there are for {have}. "
            f"Nothing was written. {NO_RELEASE}"
        )
    place = folder() / name
    diffs = sorted(place.glob("*.patch"))
    series = Series(
        release=name,
        names=tuple(path.stem for path in diffs),
        diffs=tuple(parse(path.read_bytes()) for path in diffs),
        pristine=_digests(place / "pristine.sha256"),
        patched=_digests(place / "patched.sha256"),
    )
    assert sorted(files_of(series.diffs)) == sorted(series.pristine) == sorted(series.patched)
    return series


def _numbers(release: str) -> tuple[int, ...] | None:
    """``None`` for a development version or a candidate, whose files may be any."""
    found = _RELEASE.fullmatch(release.strip().lower())
    return None if found is None else tuple(int(part or 0) for part in found.groups())


def _digests(path: Path) -> dict[str, str]:
    pairs = (line.split(maxsplit=1) for line in path.read_text(encoding="ascii").splitlines())
    return {file.strip(): digest for digest, file in pairs}
