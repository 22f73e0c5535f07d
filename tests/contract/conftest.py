"""Brings the sources of every release once a session; skips, with the reason, where it cannot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from .expected import ALL_SEAMS
from .facts import FACTS
from .releases import RELEASES
from .source import Source, modules_of
from .wheels import WheelsUnavailable, fetch

REQUIRED_VARIABLE = "EAGLE3_PROBE_WHEELS_REQUIRED"
"""Set to 1 where a skip must not pass for success, as in CI."""

SourceOf = Callable[[str], Source]


@pytest.fixture(scope="session")
def wheel_folders(request: pytest.FixtureRequest) -> dict[str, Path | WheelsUnavailable]:
    """Folder of each release's sources, or why there is none."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        print(text, flush=True)

    modules = modules_of(ALL_SEAMS, FACTS)
    if capture is None:
        return fetch(RELEASES, modules, say)
    with capture.global_and_fixture_disabled():
        return fetch(RELEASES, modules, say)


@pytest.fixture(scope="session")
def source_of(wheel_folders: dict[str, Path | WheelsUnavailable]) -> SourceOf:
    """The sources of a release; skips the test where its wheel cannot be had."""
    sources: dict[str, Source] = {}

    def get(release: str) -> Source:
        folder = wheel_folders[release]
        if isinstance(folder, WheelsUnavailable):
            unavailable(folder)
        if release not in sources:
            sources[release] = Source(folder)
        return sources[release]

    return get


def unavailable(error: WheelsUnavailable) -> NoReturn:
    """Skip for want of a wheel, or fail where that was forbidden."""
    if os.environ.get(REQUIRED_VARIABLE) == "1":
        pytest.fail(f"{REQUIRED_VARIABLE}=1, but: {error}")
    pytest.skip(f"SGLang's wheels cannot be had: {error}")
