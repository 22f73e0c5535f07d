"""The dashboard's queries read by Prometheus's own parser."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dashboard_checks.queries import Query, queries

PROGRAM = shutil.which("promtool")


def faults(given: Iterable[Query] | None = None) -> str:
    """What promtool says of queries, those of the dashboard by default; empty when it takes all.

    Raises:
        FileNotFoundError: there is no promtool.
    """
    if PROGRAM is None:
        raise FileNotFoundError("there is no promtool. Fix: apt-get install prometheus")
    asked = [q for q in (queries() if given is None else given) if not q.is_variable]
    rules = [{"record": f"query:{n}", "expr": query.expr} for n, query in enumerate(asked)]
    with tempfile.TemporaryDirectory(prefix="check-dashboard-") as folder:
        file = Path(folder) / "rules.yml"
        # YAML takes JSON.
        file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        done = subprocess.run(
            [PROGRAM, "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
    return "" if done.returncode == 0 else done.stdout + done.stderr
