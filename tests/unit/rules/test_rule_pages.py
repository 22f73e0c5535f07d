"""docs/rules is what the rules say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sglang_eagle3_probe.rules.base import Rule
from sglang_eagle3_probe.rules.pages import HEADINGS, page, pages
from sglang_eagle3_probe.rules.registry import RULES

ROOT = Path(__file__).parents[3]


def test_pages_are_up_to_date() -> None:
    folder = ROOT / "docs" / "rules"
    written = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*.md")}
    assert written == pages(), "run: python -m sglang_eagle3_probe.rules.pages docs/rules"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_page_is_complete(rule: Rule) -> None:
    text = page(rule)
    for heading, name in HEADINGS:
        assert f"## {heading}\n" in text
        assert len(getattr(rule.page, name)) > 10


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_lives_in_the_file_of_its_code(rule: Rule) -> None:
    found = list((ROOT / "sglang_eagle3_probe" / "rules").glob(f"{rule.code.lower()}_*.py"))
    assert len(found) == 1


def test_module_writes_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sglang_eagle3_probe.rules.pages"]
    assert subprocess.run([*command, str(tmp_path / "r")], cwd=ROOT, check=False).returncode == 0
    assert {p.name for p in (tmp_path / "r").iterdir()} == set(pages())
    usage = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    assert usage.returncode == 2
