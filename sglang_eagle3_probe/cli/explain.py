"""``explain CODE``: a rule's page."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Any

from sglang_eagle3_probe.cli.errors import UsageError


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "explain",
        help="print what a rule checks, why, and how to fix it",
        description="Prints a rule's page; without a code, the list of rules.",
    )
    command.add_argument("code", nargs="?", metavar="CODE", help="such as E3P101")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a page or the list."""
    from sglang_eagle3_probe.rules.pages import RULES_BY_CODE, page

    if options.code is None:
        for listed in RULES_BY_CODE:
            print(f"{listed.code}  {listed.title}")
        return 0
    rule = next((rule for rule in RULES_BY_CODE if rule.code == options.code.upper()), None)
    if rule is None:
        raise UsageError(
            f"there is no rule {options.code!r}. Fix: sglang-eagle3-probe explain lists them all"
        )
    print(_wrapped(page(rule)))
    return 0


def _wrapped(text: str) -> str:
    """Paragraphs at the terminal's width, at most 100 columns."""
    width = min(100, shutil.get_terminal_size().columns)
    return "\n\n".join(
        textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)
        for paragraph in text.strip().split("\n\n")
    )
