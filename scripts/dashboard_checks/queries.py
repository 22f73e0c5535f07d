"""The dashboard's queries, asked of a real Prometheus that scrapes a real server."""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "eagle3-probe.json"
VARIABLES = {"$model": ".*", "$tp_rank": ".*", "$__rate_interval": "15s", "$__range": "60s"}
"""What Grafana puts in their places; ``.*`` is what the dashboard sends for *All*."""


@dataclass(frozen=True)
class Query:
    """One target of a panel, or what fills a variable. expr: variables filled in."""

    panel: str
    expr: str
    is_variable: bool = False


def queries(dashboard: Path = DASHBOARD) -> Iterator[Query]:
    """All of them, in the order of the dashboard."""
    found: dict[str, Any] = json.loads(dashboard.read_text(encoding="utf-8"))
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            yield Query(f"variable {variable['name']}", _filled(variable["query"]["query"]), True)
    for panel in found["panels"]:
        for target in panel.get("targets", []):
            yield Query(panel["title"], _filled(target["expr"]))


def _filled(expr: str) -> str:
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    return expr


class Prometheus:
    """A Prometheus of its own, which scrapes one page of metrics once a second.

    Args:
        target: ``host:port`` of the server; its ``/metrics`` is scraped.

    Raises:
        FileNotFoundError: there is no ``prometheus`` on the path.
        RuntimeError: it did not start.
    """

    def __init__(self, target: str) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise FileNotFoundError(
                "there is no prometheus on the path. Fix: apt-get install prometheus"
            )
        self._program, self._target = program, target
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"

    def __enter__(self) -> Prometheus:
        self._folder = tempfile.TemporaryDirectory(prefix="check-dashboard-")
        place = Path(self._folder.name)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": "sglang", "static_configs": [{"targets": [self._target]}]}
            ],
        }
        # YAML takes JSON.
        (place / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self._log = (place / "log").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [
                self._program,
                f"--config.file={place / 'prometheus.yml'}",
                f"--storage.tsdb.path={place / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + 60
        while not self._is_scraping():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (place / "log").read_text(encoding="utf-8")[-2000:]
                self.__exit__(None, None, None)
                raise RuntimeError(f"prometheus does not scrape {self._target}: {said}")
            time.sleep(0.5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()
        self._folder.cleanup()

    def _is_scraping(self) -> bool:
        try:
            return self.now("up") == [1.0]
        except OSError:
            return False

    def _get(self, path: str, **given: str) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", str(error))) from None

    def now(self, expr: str) -> list[float]:
        """Values of a query at this moment.

        Raises:
            ValueError: it is no query, in Prometheus's words.
        """
        return [float(s["value"][1]) for s in self._get("query", query=expr)["result"]]

    def series(self, query: Query, back_s: float = 60.0) -> int:
        """How many series with a number in them a query gave over the last seconds.

        Raises:
            ValueError: it is no query, in Prometheus's words.
        """
        if query.is_variable:
            inner, label = query.expr.removeprefix("label_values(").removesuffix(")").rsplit(",", 1)
            return len(self._get(f"label/{label.strip()}/values", **{"match[]": inner}))
        end = time.time()
        found = self._get(
            "query_range", query=query.expr, start=str(end - back_s), end=str(end), step="1"
        )
        return sum(
            any(math.isfinite(float(value)) for _, value in series["values"])
            for series in found["result"]
        )
