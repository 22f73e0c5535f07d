"""Around the draft's ``load_weights``: which names were taken, which parameters filled; d2t, t2d.

Also the place where the width of the draft's ``fc`` becomes known, so a capture that cannot feed
it stops the start-up here or in the layer-ids patch, whichever comes second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..host.call import Call
from ..host.session import DraftFacts, Session
from ..host.wrapping import Proceed
from ..patches.width_check import check_width
from .draft_forward import fc_features
from .load_watch import LoadWatch

NEVER_READ = "t2d"
"""SGLang reads d2t and drops t2d on purpose, in every release."""


class DraftLoadTap:
    """Not a plain ``Tap``: it stands between the loader and its weights."""

    name = "weights"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._site = session.guard.site("weights")

    def run(self, proceed: Proceed, call: Call) -> Any:
        session = self._session
        session.draft = DraftFacts(model_class=type(call.instance).__name__)
        watch: LoadWatch | None = None
        if self._site.enabled:
            with self._site:
                self._site.check()
                watch = LoadWatch(call.instance.named_parameters())
        if watch is not None:
            weights = self._note_maps(watch.follow(call.get("weights")))
            call.replace("weights", weights)
        try:
            result = proceed(call)
        finally:
            if watch is not None:
                with self._site:
                    self._finish(watch)
        inner = getattr(call.instance, "model", call.instance)
        session.draft.fc_in_features = fc_features(getattr(inner, "fc", None))[0]
        check_width(session)
        return result

    def _note_maps(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        facts = self._session.draft
        for name, tensor in weights:
            # The copies are small (one number per vocabulary entry) and outlive the loader's own.
            if "d2t" in name:
                facts.d2t = tensor.detach().cpu().clone()
            elif NEVER_READ in name:
                facts.t2d = tensor.detach().cpu().clone()
            yield name, tensor

    def _finish(self, watch: LoadWatch) -> None:
        report = watch.finish()
        facts = self._session.draft
        facts.checkpoint_names = set(report.names)
        facts.not_taken = [n for n in report.not_taken if "d2t" not in n and NEVER_READ not in n]
        facts.not_filled = report.not_filled + [f"{n} (in part)" for n in report.partly_filled]
