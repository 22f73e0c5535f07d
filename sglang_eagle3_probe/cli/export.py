"""``export DIR --parquet OUT``: a whole trace for DuckDB, polars, pandas and the like."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from sglang_eagle3_probe.cli.errors import NEEDS_PYARROW, UsageError
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.records import AnyRecord, Footer, Progress


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "export",
        help="write a whole trace as Parquet",
        description="Writes every record of a trace directory, all runs included, as Parquet: one "
        "folder per record type, partitioned by rank and process. Losses and damage are in the "
        "tables `processes` and `problems`.",
    )
    command.add_argument("trace", type=Path, metavar="DIR", help="trace directory or file")
    command.add_argument(
        "--parquet", type=Path, required=True, metavar="OUT", help="folder to be made"
    )
    command.add_argument(
        "--force", action="store_true", help="replace an older export and all in its folder"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write, and say what was written."""
    try:
        from sglang_eagle3_probe.report import parquet_out
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pyarrow":
            raise
        raise UsageError(NEEDS_PYARROW) from None
    # The counts of losses are all that must be in memory; the rows come from the files again.
    leave_out = set(get_args(AnyRecord)) - {Footer, Progress}
    trace = read(options.trace, leave_out=leave_out)
    try:
        written = parquet_out.export(trace, options.parquet, replace=options.force)
    except parquet_out.ExportError as error:
        raise UsageError(str(error)) from None
    print(f"{written.place}: {written.bytes / 1e6:.1f} MB")
    width = max(len(f"{rows:,}") for rows in written.rows.values())
    for table, rows in sorted(written.rows.items()):
        print(f"  {rows:>{width},}  {table}")
    damaged = written.rows["problems"]
    if damaged:
        print(f"The files have {damaged} problems; they are in the table `problems`.")
    return 0
