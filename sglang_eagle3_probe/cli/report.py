"""``report DIR...``: what is wired how, what is wrong, what to change."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sglang_eagle3_probe.cli import given
from sglang_eagle3_probe.cli.errors import NEEDS_JINJA2, NEEDS_RICH, UsageError
from sglang_eagle3_probe.report import json_out
from sglang_eagle3_probe.report.lines import clean
from sglang_eagle3_probe.report.verdict import Report, build, sentence
from sglang_eagle3_probe.rules.evidence import read_evidence

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "report",
        help="judge a trace: verdict, findings with fixes, wiring, acceptance",
        description="Judges the newest server run in a trace directory. Several directories are "
        "compared. Exit code 1 when there are errors or warnings.",
    )
    command.add_argument(
        "traces", nargs="+", type=Path, metavar="DIR", help="trace directory or a single trace file"
    )
    command.add_argument(
        "--json", action="store_true", help="JSON instead of text; a list for several directories"
    )
    command.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write one HTML file that needs no network, and print the verdict alone; several "
        "directories make one file with the comparison on top. A file of that name is replaced",
    )
    command.add_argument(
        "--width", type=_width, default=None, help="columns (default: the terminal's, else 100)"
    )
    command.add_argument(
        "--acceptance",
        action="store_true",
        help="only the verdict and the acceptance with its causes, on one screen",
    )
    given.add(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report or the comparison, or write the page."""
    if options.html is not None:
        return _html(options)
    reports = _reports(options)
    if options.json:
        texts = [json_out.as_text(report) for _, report in reports]
        print(texts[0] if len(texts) == 1 else "[" + ",\n".join(texts) + "]")
    else:
        _print(reports, options.width, options.acceptance)
    return max(report.exit_code for _, report in reports)


def _html_parts() -> tuple[ModuleType, ModuleType]:
    """What makes the page and what writes it."""
    try:
        from sglang_eagle3_probe.report.html import file_out, page
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in ("jinja2", "markupsafe", "rich"):
            raise
        raise UsageError(NEEDS_JINJA2.format(missing=missing)) from None
    return page, file_out


def _html(options: argparse.Namespace) -> int:
    """Write the page; print the verdict and where the page is."""
    if options.json or options.acceptance:
        other = "--json" if options.json else "--acceptance"
        raise UsageError(f"--html writes a whole report. Fix: leave {other} out, or run it apart")
    page, file_out = _html_parts()
    place: Path = options.html
    try:
        file_out.check_place(place)
        reports = _reports(options)
        file_out.write_page(page.page(reports), place)
    except file_out.PageError as error:
        raise UsageError(clean(error)) from None
    for name, report in reports:
        print(clean(f"{name}: {sentence(report)}" if len(reports) > 1 else sentence(report)))
    print(f"{clean(place)}: written; it opens in any browser, without a network")
    return max(report.exit_code for _, report in reports)


def _reports(options: argparse.Namespace) -> list[tuple[str, Report]]:
    beside = given.given(options)
    return [(name, build(read_evidence(path), beside)) for name, path in _named(options.traces)]


def _print(reports: list[tuple[str, Report]], width: int | None, acceptance_alone: bool) -> None:
    try:
        from sglang_eagle3_probe.report import comparison, terminal
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "rich":
            raise
        raise UsageError(NEEDS_RICH) from None
    console = make_console(width)
    if acceptance_alone or len(reports) == 1:
        for name, report in reports:
            if len(reports) > 1:
                console.print(terminal.heading(name))
            terminal.show(report, console, acceptance_alone=acceptance_alone)
    else:
        comparison.show(reports, console)


def make_console(width: int | None) -> Console:
    """Colour and width as the terminal allows; 100 columns and no colour into a pipe."""
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = 100
    return Console(width=width, highlight=False, soft_wrap=False)


def _named(paths: list[Path]) -> list[tuple[str, Path]]:
    """The last part of each path as its name; the whole path where that is not unique."""
    names = [path.resolve().name for path in paths]
    return [
        (name if names.count(name) == 1 else str(path), path)
        for name, path in zip(names, paths, strict=True)
    ]


def _width(text: str) -> int:
    if not text.isdecimal() or int(text) < 40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of columns of at least 40")
    return int(text)
