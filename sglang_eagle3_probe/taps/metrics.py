"""Starts the exporter where SGLang exports metrics too, with the labels that SGLang uses.

``--enable-metrics`` makes SGLang set PROMETHEUS_MULTIPROC_DIR before it spawns its schedulers
(``set_prometheus_multiproc_dir``, all releases); the HTTP process serves what is in that folder.
So series made in this process appear on SGLang's own ``/metrics``, and nothing has to be served.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..host.call import Call
from ..host.ranks import leads_group
from ..host.session import Session
from ..host.wrapping import Tap
from ..trace.records import Ranks
from .metrics_export import Exporter, RecordFeed

LEFT_OUT = ("priority",)
"""SGLang's series of a priority are about the queue."""


class MetricsTap:
    """On return of ``Scheduler.__init__``: everything later happens on a thread of its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.tap = Tap(session.guard.site("metrics"), after=self._after)

    def _after(self, call: Call, _result: Any) -> None:
        session, scheduler = self._session, call.instance
        server_args = call.get("server_args")
        if session.feed is not None or not getattr(server_args, "enable_metrics", False):
            return
        feed = RecordFeed()
        exporter = Exporter(
            session,
            feed,
            host_labels(scheduler, server_args, session.ranks),
            traffic=counts_traffic(scheduler, server_args, session.ranks),
        )
        session.feed = feed
        threading.Thread(target=exporter.run, name="eagle3-probe-metrics", daemon=True).start()


def host_labels(scheduler: Any, server_args: Any, ranks: Ranks) -> dict[str, str]:
    """Labels of SGLang's own series of this scheduler, so that both can be put side by side.

    ``Scheduler.metrics_collector.labels`` (0.5.9 and later); ranks and model otherwise.
    """
    found = getattr(getattr(scheduler, "metrics_collector", None), "labels", None)
    if not isinstance(found, Mapping) or not found:
        name = getattr(server_args, "served_model_name", None)
        found = {"model_name": name or getattr(server_args, "model_path", "")}
        found |= {"tp_rank": ranks.tp_rank or 0, "pp_rank": ranks.pp_rank or 0}
        if ranks.dp_rank is not None:
            found["dp_rank"] = ranks.dp_rank
    return {str(k): str(v) for k, v in found.items() if k not in LEFT_OUT}


def counts_traffic(scheduler: Any, server_args: Any, ranks: Ranks) -> bool:
    """Whether SGLang lets this rank count requests: one per data-parallel group, or all of them
    with ``--enable-metrics-for-all-schedulers``.

    ``current_scheduler_metrics_enabled``, on the scheduler (0.5.9 to 0.5.12) or its metrics
    context (later); by ranks where neither is found.
    """
    for holder in (scheduler, getattr(scheduler, "metrics_collector_context", None)):
        enabled = getattr(holder, "current_scheduler_metrics_enabled", None)
        if isinstance(enabled, bool):
            return enabled
    if getattr(server_args, "enable_metrics_for_all_schedulers", False):
        return True
    return leads_group(ranks, server_args)
