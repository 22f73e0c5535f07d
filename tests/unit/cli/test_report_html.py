"""``report --html``: written whole or not at all, and one line for what a user can repair."""

from __future__ import annotations

import builtins
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.trace import samples

from sglang_eagle3_probe.cli.main import main
from sglang_eagle3_probe.report.html import file_out


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    samples.write(tmp_path / "logs", samples.owners_case())
    return tmp_path / "logs"


def test_it_is_written_and_the_verdict_is_said(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.html"
    out.write_text("older")
    assert main(["report", str(trace), "--html", str(out)]) == 1
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("The draft was trained on [-1, 2, 5]")
    assert said[1] == f"{out}: written; it opens in any browser, without a network"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "out.html"]


def test_permissions_are_those_of_any_new_file(trace: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        main(["report", str(trace), "--html", str(tmp_path / "out.html")])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.html").stat().st_mode) == 0o640


def test_several_runs_make_one_file(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples.write(tmp_path / "right", samples.clean())
    out = tmp_path / "out.html"
    assert main(["report", str(trace), str(tmp_path / "right"), "--html", str(out)]) == 1
    assert "2 runs compared" in out.read_text(encoding="utf-8")
    said = capsys.readouterr().out
    assert "logs: The draft was trained on" in said
    assert "right: Nothing wrong was found" in said


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (".", "is a folder. Fix: name a file"),
        ("no/such/out.html", "does not exist. Fix: make it"),
        ("file/out.html", "is not a folder. Fix: make it"),
    ],
)
def test_a_place_that_cannot_be_is_one_line_before_anything_is_read(
    tmp_path: Path,
    place: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "not-looked-at", "--html", place]) == 2
    captured = capsys.readouterr()
    assert why in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_a_full_disk_leaves_the_older_page_and_no_half(
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.html"
    out.write_text("older")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_out.os, "replace", full)
    assert main(["report", str(trace), "--html", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert out.read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "out.html"]


@pytest.mark.parametrize("other", ["--json", "--acceptance"])
def test_one_kind_of_report_at_a_time(
    trace: Path, tmp_path: Path, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.html"
    assert main(["report", str(trace), "--html", str(out), other]) == 2
    assert f"Fix: leave {other} out" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("package", ["jinja2", "rich"])
def test_without_the_extra_it_says_what_to_install(
    trace: Path,
    tmp_path: Path,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [n for n in sys.modules if n.startswith("sglang_eagle3_probe.report.")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    # As in a fresh process: the parent package remembers modules as attributes.
    import sglang_eagle3_probe.report as parent

    for name in ("html", "values", "understanding", "wiring"):
        monkeypatch.delattr(parent, name, raising=False)
    code = main(["report", str(trace), "--html", str(tmp_path / "out.html")])
    assert code == 2
    err = capsys.readouterr().err
    assert f"of which {package} is not installed" in err
    assert "pip install 'sglang-eagle3-probe[report]'" in err
    assert not (tmp_path / "out.html").exists()
