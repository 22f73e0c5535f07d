"""``infer-layers CAPTURE --draft DIR``: which boundaries was this draft trained on?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.report.lines import clean, show, width_of


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "infer-layers",
        help="find the target layers that a draft was trained on, by its own accuracy",
        description="Runs the draft on captured states of every boundary and finds the boundaries, "
        "and their order, with which it predicts the target best. Exit code 0 when these are the "
        "ones that were served, 1 when the draft is clearly better with others, 2 when the data do "
        "not decide or the command could not run.",
    )
    command.add_argument(
        "capture", type=Path, metavar="CAPTURE", help="capture with all layers: folder or file"
    )
    command.add_argument("--draft", required=True, metavar="DIR", help="the draft's folder")
    command.add_argument(
        "--target",
        metavar="DIR",
        help="the target's folder, for its embedding and head (default: the one that the capture "
        "names)",
    )
    command.add_argument(
        "--sglang-version",
        metavar="V",
        help="release to write the layer ids for (default: the one that captured)",
    )
    command.add_argument(
        "--rows", type=int, default=8192, metavar="N", help="positions to read at most (8192)"
    )
    command.add_argument("--json", action="store_true", help="JSON instead of text")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Infer and print."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UsageError(
            "infer-layers runs the draft and needs torch. Fix: pip install torch safetensors"
        ) from None
    from sglang_eagle3_probe.offline.trained_layers.infer_layers import infer_layers
    from sglang_eagle3_probe.offline.trained_layers.layer_serving import serving
    from sglang_eagle3_probe.report import inferred_layers as report

    if options.rows < 1:
        raise UsageError(f"--rows {options.rows} reads nothing. Fix: give a number from 1 on")
    release = options.sglang_version
    if release is not None:
        try:
            conventions.release(release)
        except ValueError as error:
            raise UsageError(f"--sglang-version: {clean(error)}") from None
    found = infer_layers(options.capture, options.draft, options.target, limit=options.rows)
    info = found.rows.info
    release = release or info.sglang or ".".join(map(str, conventions.NEWEST_READ))
    layers = info.num_layers or max(found.rows.boundaries)
    served = serving(found.best, info.target_class or None, release, layers)
    if options.json:
        print(report.as_json(found, served, release))
    else:
        show(report.as_lines(found, served, release, width_of(sys.stdout)))
    return found.exit_code
