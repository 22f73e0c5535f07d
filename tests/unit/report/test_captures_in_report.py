"""What a report says of captured requests: where they are, how to go on, what they lost."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from unit.trace import samples

from sglang_eagle3_probe.report import facts, json_out, terminal
from sglang_eagle3_probe.report.html.page import page
from sglang_eagle3_probe.report.verdict import build
from sglang_eagle3_probe.trace.capture_records import Capture, CapturePiece
from sglang_eagle3_probe.trace.reader import read


def capture(number: int = 0, **changes: object) -> Capture:
    fields: dict[str, object] = {
        "rid": "0a1b2c3d4e5f",
        "request": number,
        "pieces": 2,
        "bytes": 1_500_000,
        "folder": "/srv/probe-logs/captures",
        "first_file": "capture-h-1-tp0-000000-0000.safetensors",
        "prompt_tokens": 64,
        "cached_tokens": 0,
        "output_tokens": 40,
        "rounds": 14,
        "all_boundaries": False,
    }
    return Capture(**{**fields, **changes})  # type: ignore[arg-type]


def piece() -> CapturePiece:
    return CapturePiece(
        rid="0a1b2c3d4e5f",
        request=0,
        piece=0,
        kind="prefill",
        rows=64,
        bytes=1000,
        digests={"aux": "5d0e9a6b1c2f7788"},
    )


def test_the_line_names_folder_and_next_step() -> None:
    line = facts.captures_line([capture(), capture(1, all_boundaries=True, lost={"buffer": 3})])
    assert line == (
        "2 requests, 3.0 MB in /srv/probe-logs/captures; 1 with all boundaries; 1 with losses; "
        "go on with: sglang-eagle3-probe replay /srv/probe-logs/captures"
    )
    assert facts.captures_line([]) == ""
    assert facts.captures_line([capture(pieces=0)]) == ""
    assert facts.capture_losses({}) == ""
    assert facts.capture_losses({"write": 1, "budget": 2}) == (
        "captures not whole: 2 budget, 1 write"
    )


def test_reports_show_it(tmp_path: Path) -> None:
    samples.write(tmp_path, [*samples.clean(), piece(), capture()])
    report = build(read(tmp_path))
    out = io.StringIO()
    terminal.show(report, Console(file=out, width=120))
    assert "sglang-eagle3-probe replay" in " ".join(out.getvalue().split())
    assert "sglang-eagle3-probe replay /srv/probe-logs/captures" in page([("a", report)])
    [rank] = json_out.as_dict(report)["ranks"]
    assert [captured["rounds"] for captured in rank["captures"]] == [14]
