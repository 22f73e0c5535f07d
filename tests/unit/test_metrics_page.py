"""docs/metrics.md and the Grafana dashboard name what is exported, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from sglang_eagle3_probe.analysis.anatomy import CAUSES
from sglang_eagle3_probe.taps.metric_table import METRICS, PREFIX

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads(
    (DOCS / "grafana" / "eagle3-probe.json").read_text(encoding="utf-8")
)
OURS = {metric.name: metric for metric in METRICS}
SGLANGS_LABELS = {"model_name", "tp_rank"}
"""Those of SGLang's scheduler labels that the dashboard uses."""


def queries() -> list[str]:
    return [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", [])]


def names(text: str) -> set[str]:
    return set(re.findall(r"\bsglang[:_][a-z0-9_:]*[a-z0-9]", text))


def test_the_page_lists_every_metric_with_its_labels() -> None:
    rows = dict(re.findall(r"^\| `(sglang_\w+)` \|(.*?)\|", PAGE, re.MULTILINE))
    assert set(rows) == set(OURS)
    for name, metric in OURS.items():
        assert tuple(re.findall(r"`(\w+)`", rows[name])) == metric.labels


def test_the_page_queries_what_is_there() -> None:
    mentioned = {n for n in names(PAGE) if n.startswith(PREFIX)}
    assert mentioned <= set(OURS)
    acceptance = (DOCS / "acceptance.md").read_text(encoding="utf-8")
    assert all(cause in acceptance or cause.startswith("ranked") for cause in CAUSES)


def test_the_dashboard_shows_every_metric() -> None:
    queried = set().union(*map(names, queries()))
    assert {n for n in queried if n.startswith(PREFIX)} == set(OURS)


def test_the_dashboard_groups_by_labels_that_exist() -> None:
    for query in queries():
        for labels, rest in re.findall(r"by \((\w+)\) \((.*)", query):
            [first, *_] = re.findall(rf"{PREFIX}\w+", rest)
            assert labels in {*OURS[first].labels, *SGLANGS_LABELS}, query
        for label in re.findall(r"[{,]\s*(\w+)=~", query):
            assert label in SGLANGS_LABELS


def test_sglangs_own_metrics_are_in_the_installed_release() -> None:
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("SGLang is not installed")
    root = Path(next(iter(spec.submodule_search_locations)))
    source = (root / "srt" / "observability" / "metrics_collector.py").read_text(encoding="utf-8")
    theirs = {n for query in queries() for n in names(query) if n.startswith("sglang:")}
    assert len(theirs) >= 6
    for name in theirs:
        assert f'name="{name}"' in source, name


def test_sglangs_names_are_asked_for_with_a_colon_and_with_an_underscore() -> None:
    with_colon = [query for query in queries() if "sglang:" in query]
    assert len(with_colon) >= 8
    for query in with_colon:
        first, second = query.split(" or ")
        assert second == first.replace("sglang:", "sglang_")


def test_the_dashboard_can_be_imported() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {v["name"] for v in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used <= variables | {"datasource"}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert target["expr"].count("(") == target["expr"].count(")")
    for a, b in combinations((panel["gridPos"] for panel in panels), 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a, b)
