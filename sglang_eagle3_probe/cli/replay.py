"""``replay``: captured states run through the draft again, away from the server."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.cli.errors import NEEDS_TORCH, UsageError
from sglang_eagle3_probe.report.lines import show, width_of

FOUND, HEALTHY = 1, 0


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "replay",
        help="run captured states through the draft: does the engine compute what it says, and "
        "what was the draft trained on",
        description="Runs the states that a server captured (SGLANG_EAGLE3_PROBE_LEVEL=capture) "
        "through the draft in plain torch on the CPU. Says whether the engine drafted the same "
        "tokens, where it first departs, how often the draft is right, and which other way of "
        "running it is right more often. Exit code 1 when something is wrong.",
    )
    command.add_argument("capture", type=Path, metavar="CAPTURE", help="capture file, or folder")
    place = "folder, or a model in the local Hugging Face cache"
    command.add_argument("--draft", required=True, metavar="PLACE", help=f"the draft: {place}")
    command.add_argument(
        "--target", metavar="PLACE", help=f"its embedding and head are read: {place}"
    )
    command.add_argument("--json", action="store_true", help="JSON instead of text")
    command.add_argument(
        "--no-variations", action="store_true", help="only the draft as configured"
    )
    command.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="rows to try variations on (default: what takes some seconds a variation)",
    )
    command.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="take no further request after so many tokens (default: by the size of the draft)",
    )
    command.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="what to compute in (default: float32); bfloat16 is nearer to how an engine rounds, "
        "and slow on many CPUs",
    )
    command.add_argument("--threads", type=int, metavar="N", help="threads of torch")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay and print."""
    for name in ("rows", "tokens", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value} is no count. Fix: 1 or more")
    try:
        import torch
    except ImportError:
        raise UsageError(NEEDS_TORCH.format(command="replay")) from None
    from sglang_eagle3_probe.offline.captured import read_requests
    from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
    from sglang_eagle3_probe.offline.replaying.replay import replay
    from sglang_eagle3_probe.offline.replaying.replay_verdict import verdict
    from sglang_eagle3_probe.report.replay import as_json, lines

    if options.threads:
        torch.set_num_threads(options.threads)

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    found = replay(
        read_requests(options.capture),
        ReferenceDraft.load(
            options.draft, target=options.target, dtype=getattr(torch, options.dtype)
        ),
        rows=options.rows,
        tokens=options.tokens,
        vary=not options.no_variations,
        progress=progress,
    )
    progress("")
    judged = verdict(found)
    if options.json:
        print(json.dumps(as_json(found, judged), indent=2))
    else:
        show(lines(found, judged, width_of(sys.stdout)))
    return HEALTHY if judged.kind == "healthy" else FOUND
