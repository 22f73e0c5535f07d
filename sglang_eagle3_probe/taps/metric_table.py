"""Every metric that the probe adds to SGLang's ``/metrics``: names, kinds, labels and meaning.

Data only. The exporter makes its series from it; docs/metrics.md and the dashboard are checked
against it. All carry SGLang's own scheduler labels besides those listed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "sglang_eagle3_probe_"


@dataclass(frozen=True)
class Metric:
    """One metric family.

    Args:
        name: as it is exported, with its unit; counters end in ``_total``.
        labels: besides those that SGLang puts on all series of a scheduler.
        traffic: counted by one rank of each data-parallel group, as SGLang counts its own; ranks
            beside it see the same rounds.
    """

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    help: str
    traffic: bool = False


def _counter(name: str, help_: str, *labels: str, traffic: bool = False) -> Metric:
    return Metric(f"{PREFIX}{name}_total", "counter", labels, help_, traffic)


VERIFY_ROUNDS = _counter(
    "verify_rounds",
    "Verify rounds, one per request and round (spec_verify_ct of all requests).",
    traffic=True,
)
VERIFY_BATCHES = _counter(
    "verify_batches", "Verify forwards, whatever their batch size.", traffic=True
)
PROPOSED = _counter(
    "proposed_drafts",
    "Verify rounds that proposed a draft at this position (0-based).",
    "position",
    traffic=True,
)
CORRECT = _counter(
    "correct_drafts",
    "Verify rounds in which the drafts at positions 0 to this one were all accepted; the bonus "
    "token is not counted. The sum over positions is spec_num_correct_drafts of all requests.",
    "position",
    traffic=True,
)
REFUSED = _counter(
    "refused_drafts",
    "Verify rounds whose first refused draft was at this position, by cause. Counted once the "
    "cause is settled: some seconds after the round. not_looked_at is no cause: see the docs.",
    "position",
    "cause",
    traffic=True,
)
NOT_COUNTED = _counter(
    "uncounted_rows",
    "Rows verified after their request had ended (overlap schedule); in no other counter.",
    traffic=True,
)
DROPPED = _counter("dropped_records", "Trace records lost, by record type.", "record")
MISSED = _counter("missed", "Level stats: what passed by and was not looked at, by kind.", "kind")
ROTATED = _counter("rotated_away_records", "Trace records in files that rotation deleted.")
WRITE_ERRORS = _counter("trace_write_errors", "Failed attempts to write the trace.")
FAULTS = _counter("faults", "Exceptions of the probe's own code, kept away from SGLang.", "tap")
UNSEEN = _counter(
    "uncounted_records",
    "Records that came faster than these metrics could be counted; the trace may still have them.",
)
SCHEDULER_SECONDS = _counter(
    "scheduler_seconds",
    "Time that the probe took on the scheduler's thread, by its own clock.",
)
DISABLED = Metric(
    f"{PREFIX}disabled_taps",
    "gauge",
    (),
    "Taps that switched themselves off after repeated exceptions.",
)
INFO = Metric(
    f"{PREFIX}info",
    "gauge",
    ("probe_version", "level", "output_ids"),
    "Always 1; what this process runs. output_ids: the captured layers, in concatenation order.",
)

METRICS = (
    VERIFY_ROUNDS,
    VERIFY_BATCHES,
    PROPOSED,
    CORRECT,
    REFUSED,
    NOT_COUNTED,
    DROPPED,
    MISSED,
    ROTATED,
    WRITE_ERRORS,
    FAULTS,
    UNSEEN,
    SCHEDULER_SECONDS,
    DISABLED,
    INFO,
)
