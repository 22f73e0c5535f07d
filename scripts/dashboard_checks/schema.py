"""The dashboard read by Grafana's own published types (``grafana-foundation-sdk``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WRITTEN_BY_GRAFANA = ("definition",)
"""In every query variable that Grafana exports, but not in its types."""


def lost(dashboard: Path) -> list[str]:
    """What Grafana's types do not take over from the dashboard: fields that they do not know, and
    values that they change.

    Raises:
        ImportError: ``grafana-foundation-sdk`` is not here.
    """
    from grafana_foundation_sdk.cog import encoder, plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    given = json.loads(dashboard.read_text(encoding="utf-8"))
    taken = json.loads(encoder.JSONEncoder().encode(Dashboard.from_json(given)))
    return list(_differences(given, taken, "dashboard"))


def _differences(given: Any, taken: Any, at: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(taken, dict):
        for key, value in given.items():
            if key in taken:
                yield from _differences(value, taken[key], f"{at}.{key}")
            elif value not in ({}, [], None) and key not in WRITTEN_BY_GRAFANA:
                yield f"{at}.{key} is not known"
    elif isinstance(given, list) and isinstance(taken, list) and len(given) == len(taken):
        for number, (mine, theirs) in enumerate(zip(given, taken, strict=True)):
            yield from _differences(mine, theirs, f"{at}[{number}]")
    elif given != taken:
        yield f"{at} is {given!r}, taken as {taken!r}"
