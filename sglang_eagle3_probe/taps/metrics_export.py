"""Turns records into Prometheus counters, on a daemon thread, about once a second.

One increment of a multi-process counter takes 2 to 4 us and a lock; a round would need a dozen. So
the scheduler's thread appends a reference to a queue (0.2 us a record) and everything else, the
files of prometheus_client included, happens here.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from time import monotonic
from typing import Any

from .. import __version__
from ..analysis.slices import depth_of
from ..host.session import Session
from ..trace.acceptance_records import Refusals, RequestEnd, VerifyRound
from ..trace.cost_records import ProbeCost
from ..trace.record_base import Record
from ..trace.records import Losses
from . import metric_table as table
from .metric_table import METRICS, Metric
from .settled_causes import SettledCauses

EVERY_S = 1.0
LIMIT = 16_384
"""Records between two passes; more are counted as unseen."""
COUNTED = frozenset({VerifyRound, Refusals, RequestEnd, ProbeCost})


class RecordFeed:
    """Records on their way to the exporter. ``put`` is called on the scheduler's thread."""

    __slots__ = ("_queue", "unseen")

    def __init__(self) -> None:
        self._queue: deque[Record] = deque()
        self.unseen = 0

    def put(self, record: Record) -> None:
        """Take a reference. Never blocks, never raises; the record must not change afterwards."""
        if type(record) in COUNTED:
            if len(self._queue) < LIMIT:
                self._queue.append(record)
            else:
                self.unseen += 1

    def take(self) -> list[Record]:
        """Everything put in so far, oldest first."""
        taken = []
        while self._queue:
            taken.append(self._queue.popleft())
        return taken


class Series:
    """The metric families of this process, with SGLang's labels filled in."""

    def __init__(self, labels: Mapping[str, str], registry: Any = None) -> None:
        """Opens files of prometheus_client, when it runs in multi-process mode.

        Args:
            registry: prometheus_client's own unless given.
        """
        # It decides for one process or several when it is first imported, by a variable that
        # SGLang has set by now; and it is there because SGLang needs it.
        from prometheus_client import REGISTRY, Gauge
        from prometheus_client import Counter as PromCounter

        self._labels = dict(labels)
        self._families: dict[str, Any] = {}
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        for metric in METRICS:
            names = [*self._labels, *metric.labels]
            where = registry or REGISTRY
            if metric.kind == "counter":
                family: Any = PromCounter(metric.name, metric.help, names, registry=where)
            else:
                family = Gauge(
                    metric.name,
                    metric.help,
                    names,
                    registry=where,
                    multiprocess_mode="mostrecent",
                )
            self._families[metric.name] = family

    def add(self, metric: Metric, amount: float, *values: object) -> None:
        """Count; a new series begins at its first amount, 0 included."""
        self._child(metric, values).inc(amount)

    def set(self, metric: Metric, value: float, *values: object) -> None:
        """Set a gauge."""
        self._child(metric, values).set(value)

    def _child(self, metric: Metric, values: tuple[object, ...]) -> Any:
        words = tuple(str(value) for value in values)
        key = (metric.name, words)
        found = self._children.get(key)
        if found is None:
            own = dict(zip(metric.labels, words, strict=True))
            found = self._families[metric.name].labels(**self._labels, **own)
            self._children[key] = found
        return found


class Exporter:
    """Counts what the feed brings, and the losses that the recorder keeps book of."""

    def __init__(
        self, session: Session, feed: RecordFeed, labels: Mapping[str, str], *, traffic: bool
    ) -> None:
        """traffic: whether this rank counts rounds; otherwise only what concerns its own trace."""
        self._session = session
        self._feed = feed
        self._labels = labels
        self._traffic = traffic
        self._site = session.guard.site("metrics_export")
        self._causes = SettledCauses(from_device=session.settings.level != "wiring")
        self._told: Counter[tuple[str, ...]] = Counter()
        self._stop = threading.Event()

    def run(self) -> None:
        """The thread: until the process ends, or this has failed too often."""
        series: Series | None = None
        while self._site.enabled:
            with self._site as site:
                site.check()
                if series is None:
                    series = self._begin()
                self.export(series, monotonic())
            self._stop.wait(EVERY_S)
        self._session.feed = None

    def _begin(self) -> Series:
        series = Series(self._labels)
        session = self._session
        record = session.layer_ids
        ids = "" if record is None else ",".join(str(slot.output_id) for slot in record.slots)
        series.set(table.INFO, 1, __version__, session.settings.level, ids)
        # A counter that is not there and a counter at 0 are not the same to who looks at a rate.
        for metric in METRICS:
            mine = self._traffic or not metric.traffic
            if mine and metric.kind == "counter" and not metric.labels:
                series.add(metric, 0)
        session.say("metrics: counted on SGLang's /metrics, names %s*", table.PREFIX)
        return series

    def export(self, series: Series, now_s: float) -> None:
        """One pass. now_s: monotonic clock."""
        records = self._feed.take()
        seconds = sum(
            seam.total_us for r in records if isinstance(r, ProbeCost) for seam in r.seams
        )
        if seconds:
            series.add(table.SCHEDULER_SECONDS, seconds / 1e6)
        if self._traffic:
            self._count_traffic(series, records, now_s)
        self._count_losses(series, self._session.recorder.losses())

    def _count_traffic(self, series: Series, records: list[Record], now_s: float) -> None:
        rounds = [r for r in records if isinstance(r, VerifyRound)]
        outcomes: Counter[tuple[int, int]] = Counter()
        for round_ in rounds:
            depth = depth_of(round_)
            outcomes.update((depth, c) for c in round_.correct_drafts if 0 <= c <= depth)
            self._causes.add_round(round_, now_s)
        for record in records:
            if isinstance(record, Refusals):
                self._causes.add_refusals(record)
            elif isinstance(record, RequestEnd):
                self._causes.add_end(record)
        if rounds:
            series.add(table.VERIFY_BATCHES, len(rounds))
            series.add(table.VERIFY_ROUNDS, sum(outcomes.values()))
            series.add(table.NOT_COUNTED, sum(len(r.not_counted) for r in rounds))
            for position in range(max((depth for depth, _ in outcomes), default=0)):
                proposed = sum(n for (depth, _), n in outcomes.items() if depth > position)
                correct = sum(n for (_, right), n in outcomes.items() if right > position)
                series.add(table.PROPOSED, proposed, position)
                series.add(table.CORRECT, correct, position)
        for (position, cause), count in self._causes.settle(now_s).items():
            series.add(table.REFUSED, count, position, cause)

    def _count_losses(self, series: Series, losses: Losses) -> None:
        for kind, count in losses.dropped_records.items():
            self._raise_to(series, table.DROPPED, count, kind)
        for kind, count in losses.missed.items():
            self._raise_to(series, table.MISSED, count, kind)
        for tap, count in losses.faults.items():
            self._raise_to(series, table.FAULTS, count, tap)
        self._raise_to(series, table.WRITE_ERRORS, losses.write_errors)
        self._raise_to(series, table.ROTATED, losses.rotated_away_records)
        self._raise_to(series, table.UNSEEN, self._feed.unseen)
        series.set(table.DISABLED, len(losses.disabled_sites))

    def _raise_to(self, series: Series, metric: Metric, total: int, *values: str) -> None:
        """Bring a counter to a total that somebody else counts."""
        key = (metric.name, *values)
        grown = total - self._told[key]
        if grown > 0:
            self._told[key] = total
            series.add(metric, grown, *values)
