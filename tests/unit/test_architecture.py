"""The rules of the house that a reader of one file cannot see."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sglang_eagle3_probe"
FILES = sorted(PACKAGE.rglob("*.py"))

MAY_IMPORT: dict[str, set[str]] = {
    "settings": set(),
    "trace": set(),
    "device": set(),
    "capture": set(),
    "host": {"settings", "trace"},
    "patches": {"settings", "trace", "host"},
    "taps": {
        "settings",
        "trace",
        "host",
        "patches",
        "device",
        "capture",
        "checkpoint",
        "rules",
        "analysis",
    },
    "attach": {"settings", "trace", "host", "patches", "taps"},
    "plugin": {"settings", "attach"},
    "launch_server": {"plugin", "host"},
    "analysis": {"trace"},
    "checkpoint": {"settings", "host"},
    "rules": {"trace", "analysis", "checkpoint", "host"},
    "offline": {"trace", "capture", "checkpoint", "analysis", "host"},
    "report": {"trace", "analysis", "rules", "checkpoint", "offline", "host"},
    "source_patches": set(),
    "cli": {
        "trace",
        "analysis",
        "rules",
        "report",
        "checkpoint",
        "offline",
        "host",
        "source_patches",
    },
}
"""Part -> parts it may import. Data flows one way: the server's half up to trace, the reading half
from trace on."""


READING_IN_THE_SERVER = {
    "static_findings.py": {"checkpoint", "rules"},
    "settled_causes.py": {"analysis"},
    "metrics_export.py": {"analysis"},
}
"""Of ``taps``, these may import from the reading half, both for a thread of their own: static rules
also run where the server is, and metrics name causes of refusals as reports do."""

PURE_TABLES = {"conventions", "producers", "target_classes"}
"""Of ``host``, the reading half may import these: knowledge of SGLang without SGLang."""


def part_of(file: Path) -> str:
    relative = file.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports_of(file: Path) -> Iterator[str]:
    """Dotted names of what a file imports, ours as ``sglang_eagle3_probe.<part>...``."""
    inside = file.relative_to(PACKAGE.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(inside[: len(inside) - node.level]) if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            yield ".".join(module)
            if node.level and not node.module:
                yield from (".".join([*module, alias.name]) for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_point_one_way(file: Path) -> None:
    mine = part_of(file)
    for name in imports_of(file):
        parts = name.split(".")
        if parts[0] != "sglang_eagle3_probe" or len(parts) < 2:
            continue
        theirs = parts[1]
        if theirs not in (mine, "__version__") and mine in MAY_IMPORT:
            assert theirs in MAY_IMPORT[mine], f"{mine} imports {name}"
        if theirs in ("checkpoint", "rules", "analysis") and mine == "taps":
            assert theirs in READING_IN_THE_SERVER.get(file.name, ()), f"{file.name} imports {name}"
        if theirs == "host" and mine in ("checkpoint", "rules", "offline", "report", "cli"):
            assert parts[2:3] == [] or parts[2] in PURE_TABLES, f"{mine} imports {name}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_who_may_do_what(file: Path) -> None:
    mine = part_of(file)
    text = file.read_text(encoding="utf-8")
    if mine != "host":
        assert not any(n.split(".")[0] == "sglang" for n in imports_of(file))
    if mine != "settings":
        assert "environ" not in text.replace("environment", "")
    if mine not in ("cli", "report"):
        calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
        assert not any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls)
    assert text.count("\n") <= 420, "split this file"
    assert file.name != "utils.py"


def test_every_part_is_in_the_table() -> None:
    parts = {part_of(f) for f in FILES} - {"__init__"}
    assert parts == set(MAY_IMPORT)
