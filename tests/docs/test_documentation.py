"""The documentation builds as a site, without a warning, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert not [line for line in lines if "WARNING" in line or "contains a link" in line]
    return place


def test_every_page_is_there(site: Path) -> None:
    pages = {p.relative_to(DOCS).with_suffix(".html") for p in DOCS.rglob("*.md")}
    pages = {p.with_name("index.html") if p.stem == "README" else p for p in pages}
    built = {p.relative_to(site) for p in site.rglob("*.html")}
    assert pages <= built


def test_no_other_host(site: Path) -> None:
    """Links may lead elsewhere; nothing is loaded from there."""
    loaded = re.compile(r"""<(?:script|img|link)[^>]+(?:src|href)=["']?(https?:[^"'> ]+)""")
    for page in site.rglob("*.html"):
        found = loaded.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.relative_to(site)} loads {found}"


def test_links_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), f"README.md links to {target}"


def test_no_draft_words() -> None:
    """What has been left to be written is written."""
    for page in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"\b(TODO|FIXME|TBD|lorem)\b", text), page


def test_the_worked_case_quotes_the_demo() -> None:
    """Its figures are those that README's demo prints."""
    case = (DOCS / "owner_case.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, after = re.findall(r"accept length (\d\.\d\d) -> (\d\.\d\d)", readme)[0]
    rounds = re.findall(r"verify rounds for the same \d+ tokens: (\d+) -> (\d+)", readme)[0]
    for figure in (before, after, *rounds):
        assert figure in case


def test_mkdocs_is_installed() -> None:
    assert shutil.which("mkdocs", path=str(Path(sys.executable).parent))
