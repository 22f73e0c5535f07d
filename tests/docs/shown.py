"""Commands that the documentation shows: indented or fenced lines, continuations joined."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTS = ("sglang-eagle3-probe", "sglang", "python", "pip", "scripts/", "SGLANG_")


@dataclass(frozen=True)
class Shown:
    """One command as a page shows it."""

    page: str
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        """Without the comment that may follow it."""
        return shlex.split(self.text, comments=True)

    @property
    def command(self) -> list[str]:
        """Without the variables set in front of it."""
        return list(dropwhile(lambda word: re.match(r"^[A-Z_0-9]+=", word), self.words))

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """What users read. Rule pages and measurements show no commands to type, or hand-run ones."""
    docs = ROOT / "docs"
    inner = [p for p in docs.glob("*.md") if p.name not in ("compatibility.md",)]
    return [ROOT / "README.md", ROOT / "patches" / "README.md", *sorted(inner)]


def shown() -> Iterator[Shown]:
    """Every command of every page, in order."""
    for page in pages():
        yield from _of(page)


def _of(page: Path) -> Iterator[Shown]:
    name = page.relative_to(ROOT).as_posix()
    lines = page.read_text(encoding="utf-8").splitlines()
    fenced = False
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("```"):
            fenced = not fenced
            number += 1
            continue
        code = re.match(r"^(?: {4,})(\S.*)$", line) or (fenced and re.match(r"^(\S.*)$", line))
        if not code:
            number += 1
            continue
        start = number
        text = code.group(1).removeprefix("$ ")
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text = text[:-1] + " " + lines[number].strip()
        number += 1
        if text.startswith(STARTS) and " -> " not in text:
            yield Shown(name, start + 1, text)
