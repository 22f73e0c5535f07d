"""What the user knows beside the trace: ``--predicted FILE`` and ``--plain DIR|TOKENS_PER_S``."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.analysis.economics import Plain
from sglang_eagle3_probe.analysis.phase_costs import Costs, plain_steps
from sglang_eagle3_probe.analysis.prediction import (
    MOST_BYTES,
    Prediction,
    PredictionError,
    parse,
)
from sglang_eagle3_probe.analysis.understanding import Given
from sglang_eagle3_probe.cli.errors import UsageError
from sglang_eagle3_probe.report.lines import clean
from sglang_eagle3_probe.trace.acceptance_records import PhaseTimes
from sglang_eagle3_probe.trace.reader import read
from sglang_eagle3_probe.trace.traffic import TRAFFIC_TYPES, read_traffic

RATE = re.compile(r"(?P<rate>\d+(\.\d*)?|\.\d+)(@(?P<batch>\d+))?$")


def add(command: Any) -> None:
    """Declare the two options."""
    command.add_argument(
        "--predicted",
        type=Path,
        metavar="FILE",
        help="the trainer's per-step accuracies, such as the draft's trainer_accuracy.json: "
        "compares them with what was measured",
    )
    command.add_argument(
        "--plain",
        metavar="DIR|RATE",
        help="decoding without speculation: tokens/s of one request (90, or 40@8 at batch size "
        "8), or the trace of a run without speculation at the same batch sizes",
    )


def given(options: argparse.Namespace) -> Given:
    """Read what was named.

    Raises:
        UsageError: it cannot be read, or is not what it should be.
    """
    return Given(
        predicted=None if options.predicted is None else predicted(options.predicted),
        plain=None if options.plain is None else plain(options.plain),
    )


def predicted(path: Path) -> Prediction:
    """The trainer's accuracies in a file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"--predicted {clean(path)} cannot be read ({error.strerror or error}). "
            "Fix: name the file with the trainer's accuracies"
        ) from None
    try:
        return parse(data, path.name)
    except PredictionError as error:
        raise UsageError(f"--predicted: {error}") from None


def plain(text: str) -> Plain:
    """A rate, or the trace of a run without speculation."""
    match = RATE.fullmatch(text)
    if match is not None:
        rate = float(match["rate"])
        batch = int(match["batch"] or 0)
        if not rate > 0 or not math.isfinite(rate):
            raise UsageError(
                f"--plain {clean(text)} is no speed. Fix: tokens/s above 0, such as 90"
            )
        at = f" at batch size {batch}" if batch else ""
        return Plain({batch: 1000 / rate}, "spacing", f"{rate:g} tokens/s{at} as given")
    costs = Costs()
    for process in read(text, leave_out=TRAFFIC_TYPES).newest_run().processes:
        for record in read_traffic(process.files):
            if isinstance(record, PhaseTimes):
                costs.add_times(record)
    steps = plain_steps(costs)
    if not steps:
        raise UsageError(
            f"--plain {clean(text)} holds no times of plain decode steps. Fix: record a run "
            "without --speculative-algorithm at SGLANG_EAGLE3_PROBE_LEVEL=stats, or give the speed "
            "in tokens/s"
        )
    return Plain(steps, "phases", f"decode phases of {clean(Path(text).name)}")
