"""``diff DIR_A DIR_B``: is the difference in acceptance between two runs real?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.analysis.run_difference import RunDifference, compare_runs
from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.report import difference
from sglang_eagle3_probe.report.lines import clean, show, width_of
from sglang_eagle3_probe.rules.evidence import rounds_of
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.traffic import TRAFFIC_TYPES


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "diff",
        help="compare the acceptance of two runs: a real difference, or noise",
        description="Compares the newest run of each directory, with intervals that know that "
        "rounds of one request are alike. Exit code 1 when B accepts really less than A (with "
        "--fail-on different: really more or less), 2 when either has no rounds or too few "
        "requests to tell.",
    )
    command.add_argument("a", type=Path, metavar="DIR_A", help="trace directory or file: before")
    command.add_argument("b", type=Path, metavar="DIR_B", help="trace directory or file: after")
    command.add_argument("--json", action="store_true", help="JSON instead of text")
    command.add_argument(
        "--fail-on",
        choices=("worse", "different"),
        default="worse",
        help="what exit code 1 stands for (default: worse)",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare and print."""
    counts = [rounds_of(read(path, leave_out=TRAFFIC_TYPES)) for path in (options.a, options.b)]
    names = _names(options.a, options.b)
    found = compare_runs(counts[0], counts[1])
    code = exit_code(found, options.fail_on)
    if options.json:
        print(difference.as_json(found, names, code))
    else:
        show(difference.as_lines(found, names, width_of(sys.stdout)))
    if found.answer == "cannot_tell":
        raise UsageError(f"{found.why}. Fix: serve more requests in both runs")
    return code


def exit_code(found: RunDifference, fail_on: str) -> int:
    """0 nothing to fail on, 1 a real difference of that kind, 2 cannot tell."""
    if found.answer == "cannot_tell":
        return 2
    return int(found.answer == "shorter" or (found.answer == "longer" and fail_on == "different"))


def _names(a: Path, b: Path) -> tuple[str, str]:
    names = [clean(path.resolve().name) for path in (a, b)]
    if names[0] == names[1]:
        names = [clean(a), clean(b)]
    return names[0], names[1]
