"""Which SGLang is installed, and whether a row of a table applies to it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from packaging.version import InvalidVersion, Version

OLDEST_PROVED = "0.5.9"
NEWEST_PROVED = "0.5.23"


@dataclass(frozen=True)
class Releases:
    """A range of SGLang releases, both ends included; ``None`` leaves an end open.

    An open upper end means "not known to have gone": on a release newer than those proved, the
    seam is still tried and verified by signature.
    """

    since: str = OLDEST_PROVED
    until: str | None = None

    def contains(self, release: str) -> bool:
        """Post-releases count as the release they follow or any later one, by PEP 440 order."""
        version = _parse(release)
        if version is None:
            return self.until is None
        return version >= Version(self.since) and (
            self.until is None or version <= Version(self.until)
        )

    def __str__(self) -> str:
        return f"{self.since} and later" if self.until is None else f"{self.since} to {self.until}"


def _parse(release: str) -> Version | None:
    try:
        return Version(release)
    except InvalidVersion:
        return None


def installed_release() -> str:
    """Version text of the installed SGLang, read from package metadata (no import of SGLang)."""
    return installed_version("sglang") or "unknown"


def installed_version(distribution: str) -> str | None:
    """Version text of a distribution, or ``None`` when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def is_proved(release: str) -> bool:
    """Whether the seam table was checked on this release."""
    version = _parse(release)
    return version is not None and Version(OLDEST_PROVED) <= version <= Version(NEWEST_PROVED)
