"""``sglang-eagle3-probe``: reads traces; needs neither SGLang nor a GPU."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from sglang_eagle3_probe import __version__
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.cli import (
    compare,
    diff,
    doctor,
    explain,
    export,
    infer_layers,
    patch_source,
    replay,
    report,
    show,
    tail,
    top,
)
from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.trace.reader import TraceError

COMMANDS = (
    doctor,
    report,
    diff,
    top,
    tail,
    replay,
    infer_layers,
    compare,
    show,
    export,
    patch_source,
    explain,
)
"""As ``--help`` lists them."""

COULD_NOT_RUN = 2
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    result = argparse.ArgumentParser(
        prog="sglang-eagle3-probe",
        description="Finds out why an EAGLE-3 draft accepts so little when served by SGLang: reads "
        "the traces that a server started with --enable-probe writes.",
        epilog="exit codes: 0 clean, 1 findings, 2 could not run",
    )
    result.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = result.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add(commands)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; every foreseeable trouble is one message on stderr and exit code 2."""
    options = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a sign gets a "?"
            stream.reconfigure(errors="replace")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except (CheckpointError, TraceError, UsageError) as error:
        print(f"sglang-eagle3-probe: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) left. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
