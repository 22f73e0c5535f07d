"""The Grafana dashboard by Grafana's types and Prometheus's parser, where they are installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from dashboard_checks import promtool, schema
from dashboard_checks.queries import DASHBOARD, Query, queries

needs_promtool = pytest.mark.skipif(
    promtool.PROGRAM is None, reason="no promtool here (apt-get install prometheus)"
)


def test_every_variable_is_filled_in() -> None:
    asked = list(queries())
    assert len([q for q in asked if q.is_variable]) == 2
    assert len(asked) > 20
    assert not [q for q in asked if "$" in q.expr]


@needs_promtool
def test_prometheus_takes_every_query() -> None:
    assert promtool.faults() == ""


@needs_promtool
def test_prometheus_would_refuse_a_wrong_query() -> None:
    assert "parse error" in promtool.faults([Query("x", "sum(rate(a[5m])")])


def spell(dashboard: dict[str, Any]) -> None:
    panel = dashboard["panels"][1]
    panel["gridpos"] = panel.pop("gridPos")


def retype(dashboard: dict[str, Any]) -> None:
    dashboard["panels"][1]["targets"][0]["exprs"] = "up"


@pytest.mark.parametrize(
    ("change", "says"),
    [(None, []), (spell, ["gridpos is not known"]), (retype, ["exprs is not known"])],
)
def test_grafanas_types_know_every_field(
    change: Callable[[dict[str, Any]], None] | None, says: list[str], tmp_path: Path
) -> None:
    pytest.importorskip(
        "grafana_foundation_sdk", reason="no grafana-foundation-sdk here (pip install it)"
    )
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    if change is not None:
        change(dashboard)
    path = tmp_path / "dashboard.json"
    path.write_text(json.dumps(dashboard), encoding="utf-8")
    found = schema.lost(path)
    assert len(found) == len(says)
    assert all(end in text for text, end in zip(found, says, strict=True))
