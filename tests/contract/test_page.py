"""docs/compatibility.md is what scripts/compatibility would write now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import SourceOf
from .expected import NEEDED
from .page import page
from .releases import RELEASES

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "compatibility"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_page_is_fresh(source_of: SourceOf) -> None:
    for release in RELEASES:
        source_of(release)
    done = run("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_stale_page_is_told(source_of: SourceOf, tmp_path: Path) -> None:
    for release in RELEASES:
        source_of(release)
    stale = tmp_path / "compatibility.md"
    stale.write_text("old\n", encoding="utf-8")
    done = run("--check", "--page", str(stale))
    assert done.returncode == 1
    assert "scripts/compatibility" in done.stderr
    assert stale.read_text(encoding="utf-8") == "old\n"


def test_page_has_every_release_and_no_fault(source_of: SourceOf) -> None:
    text = page({release: source_of(release) for release in RELEASES})
    table = text.partition("## By release\n")[2].partition("\n- ✓")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| 0.")]
    assert [row[0].removeprefix("| ") for row in rows] == list(reversed(RELEASES))
    assert all(len(row) == len(NEEDED) + 2 for row in rows)
    assert "✗" not in table
