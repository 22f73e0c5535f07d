"""The reader itself, on small sources made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_eagle3_probe.host.seams import Seam
from sglang_eagle3_probe.host.versions import Releases

from .facts import Fact, Kind
from .source import Source, Target, judge

CODE = """
class Base:
    def inherited(self, batch): ...

class Worker(Base):
    field: int = 0

    def __init__(self, server_args, *, rank=0):
        self.runner = None

    @staticmethod
    def add(parser): ...

    @property
    def model(self): ...

    def run(self, batch):
        self.model.layers = [i + 1 for i in batch]
        if not batch:
            return
        return logits, self.draft(batch), 3

if True:
    def function(a, /, b): ...
"""


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "made.py").write_text(CODE)
    return Source(tmp_path)


def row(attribute: str, *parameters: str) -> Seam:
    return Seam("name", "sglang.made", attribute, parameters, Releases(), "why")


@pytest.mark.parametrize(
    ("attribute", "owner", "parameters"),
    [
        ("Worker.__init__", "Worker", ("server_args", "rank")),
        ("Worker.add", "Worker", ("parser",)),
        ("Worker.inherited", "Base", ("batch",)),
        ("function", "", ("a", "b")),
    ],
)
def test_finds_targets(
    source: Source, attribute: str, owner: str, parameters: tuple[str, ...]
) -> None:
    assert source.target("sglang.made", attribute) == Target(owner, parameters, False)


@pytest.mark.parametrize(
    ("seam", "fault"),
    [
        (row("Worker.run", "batch"), ""),
        (row("Worker.run", "batch", "other"), "has no other"),
        (row("Worker.inherited", "batch"), "must name Base"),
        (row("Worker.model"), "is a property"),
        (row("Worker.gone"), "no method"),
        (row("Gone.run"), "no class"),
        (row("gone"), "no function"),
        (Seam("name", "sglang.gone", "f", (), Releases(), "why"), "no module"),
    ],
)
def test_judges_rows(source: Source, seam: Seam, fault: str) -> None:
    verdict = judge(source, seam)
    assert fault in verdict.fault
    assert bool(verdict.fault) is bool(fault)


@pytest.mark.parametrize(
    ("scope", "kind", "needle", "holds"),
    [
        ("Worker.run", "assigns", "self.model.layers", True),
        ("Worker.run", "assigns", "self.layers", False),
        ("Worker", "attribute", "field", True),
        ("Worker", "attribute", "runner", True),
        ("Worker", "attribute", "model", True),
        ("Worker", "attribute", "absent", False),
        ("Worker.run", "calls", "self.draft", True),
        ("Worker.run", "calls", "self.verify", False),
        ("Worker.run", "returns", "logits, self.draft(batch)", True),
        ("Worker.run", "returns", "logits, other", False),
        ("Worker.run", "reads", "self.model", True),
        ("Worker.run", "reads", "model", False),
        ("Worker.run", "text", "[i + 1 for i in batch]", True),
        ("", "text", "if True", True),
        ("Gone", "text", "if True", False),
    ],
)
def test_checks_facts(source: Source, scope: str, kind: Kind, needle: str, holds: bool) -> None:
    assert source.holds(Fact("sglang.made", scope, kind, needle, Releases(), "why")) is holds
