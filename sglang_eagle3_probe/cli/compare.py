"""``compare CAPTURE --train PATH``: are the served states those that the draft was trained on?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.cli.errors import NEEDS_TORCH, UsageError
from sglang_eagle3_probe.report.lines import show, width_of


def add(commands: Any) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "compare",
        help="compare served aux hidden states with those that the trainer saved",
        description="Finds the tokens that a capture and a trainer's saved states have in common, "
        "compares every aux slot on them and names what is different: order, layer, residual, "
        "norm, basis, precision, stale rows. Exit code 0 when all is alike, 1 when not.",
    )
    command.add_argument(
        "capture",
        type=Path,
        metavar="CAPTURE",
        help="capture file, their folder, or the probe's folder of a server at level capture",
    )
    command.add_argument(
        "--train",
        type=Path,
        required=True,
        metavar="PATH",
        help="file or folder of training states: SpecForge, speculators, vLLM, ModelOpt, "
        "AngelSlim, NeMo, TensorRT-LLM, BaldEagle, plain .pt or .safetensors; or another capture",
    )
    command.add_argument(
        "--target",
        metavar="DIR",
        help="the target's folder: its embedding and final norm are compared as well",
    )
    command.add_argument("--json", action="store_true", help="JSON instead of text")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare and print."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UsageError(NEEDS_TORCH.format(command="compare")) from None
    from sglang_eagle3_probe.offline.captured import capture_files, read_piece, read_requests
    from sglang_eagle3_probe.offline.comparing.comparison import compare
    from sglang_eagle3_probe.offline.comparing.target_states import open_target
    from sglang_eagle3_probe.offline.comparing.training_states.found import Search
    from sglang_eagle3_probe.report import training_states as report

    target = open_target(options.target) if options.target is not None else None
    hidden = read_piece(capture_files(options.capture)[0]).info.hidden_width
    found = compare(read_requests(options.capture), Search(options.train, hidden), target)
    if options.json:
        print(report.as_json(found))
    else:
        show(report.as_lines(found, width_of(sys.stdout)))
    return found.exit_code
