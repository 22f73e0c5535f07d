"""The probe in one scheduler process: what its parts share."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import __version__
from ..settings import Settings
from ..trace.record_base import Record
from ..trace.recorder import Recorder
from ..trace.records import Header, LayerIds, Ranks, VocabMap, Weights
from ..trace.request_ids import rid_digest
from .draft_files import DraftFiles, read_draft_files
from .guard import Guard, ProbeConfigurationError
from .versions import installed_release, installed_version

logger = logging.getLogger("sglang_eagle3_probe")

REMEMBERED_RIDS = 4096
_OTHER_PACKAGES = ("torch", "transformers", "triton", "flashinfer-python", "wrapt", "msgspec")


@dataclass
class CapturePlan:
    """What one target model captures and in which order it leaves the logits processor.

    boundaries: in concatenation order. order: arrival position per place, or ``None``.
    """

    boundaries: tuple[int, ...]
    hidden_width: int
    place: str
    order: tuple[int, ...] | None = None


@dataclass
class DraftFacts:
    """What is known of the draft once its weights are loaded."""

    model_class: str = ""
    fc_in_features: int | None = None
    d2t: Any = None
    t2d: Any = None
    checkpoint_names: set[str] = field(default_factory=set)
    not_taken: list[str] = field(default_factory=list)
    not_filled: list[str] = field(default_factory=list)


class Feed(Protocol):
    """Takes records on the thread that made them."""

    def put(self, record: Record) -> None:
        """Never blocks, never raises."""
        ...


class Session:
    """Settings, recorder, guard and the facts that one tap learns and another needs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.release = installed_release()
        self.ranks = Ranks()
        self.server_args: Any = None
        self.recorder = Recorder(
            settings.dir,
            "scheduler",
            self._header,
            queue_records=settings.queue_records,
            file_bytes=settings.file_mb * 1024 * 1024,
            max_files=settings.files,
        )
        self.guard = Guard(
            settings.fault_limit,
            self.recorder.record_fault,
            [s.strip() for s in settings.fail_site.split(",") if s.strip()],
        )
        self.plans: weakref.WeakKeyDictionary[Any, CapturePlan] = weakref.WeakKeyDictionary()
        """Target logits processor -> plan."""
        self.target_logits: weakref.WeakSet[Any] = weakref.WeakSet()
        """Logits processors that belong to the target."""
        self.draft = DraftFacts()
        self.layer_ids: LayerIds | None = None
        self.vocab_map: VocabMap | None = None
        self.weights: Weights | None = None
        """The newest records of what was wired, for parts that judge it."""
        self.runner_ids: list[int] | None = None
        """The draft config's list, where SGLang applies it after graph capture (up to 0.5.10)."""
        self.early_patches: list[str] = []
        """Patches that acted on the layer ids before the setter was reached."""
        self.served_class = ""
        """Outer class that delegates to the class being configured, if any."""
        self.last_target_prefill: tuple[str, list[int] | None, list[int] | None] | None = None
        """Capture mode, logits shape and hidden states shape of the latest target prefill."""
        self._draft_files: DraftFiles | None = None
        self._digests: dict[str, str] = {}
        self.feed: Feed | None = None
        """Gets every record too, once somebody counts them while the server runs."""
        self.on_target_model: list[Callable[[Any], None]] = []
        """Called with the target model as soon as its layer ids are set."""

    def emit(self, record: Record) -> None:
        """Hand a record to the writer thread. Never blocks, never raises."""
        self.recorder.emit(record)
        feed = self.feed
        if feed is not None:
            feed.put(record)

    def miss(self, kind: str, count: int = 1) -> None:
        """Count what passed by and was not looked at, so that the trace says so."""
        self.recorder.missed(kind, count)

    def say(self, message: str, *args: Any) -> None:
        """One line in the server's log."""
        logger.info("eagle3-probe: " + message, *args)

    def warn(self, message: str, *args: Any) -> None:
        """One line in the server's log about something that wants mending."""
        logger.warning("eagle3-probe: " + message, *args)

    def rid_digest(self, rid: Any) -> str:
        """``trace.request_ids.rid_digest``, remembered."""
        text = str(rid)
        found = self._digests.get(text)
        if found is None:
            if len(self._digests) >= REMEMBERED_RIDS:
                self._digests.clear()
            found = rid_digest(text)
            self._digests[text] = found
        return found

    @property
    def draft_files(self) -> DraftFiles:
        """The draft's folder, read once."""
        if self._draft_files is None:
            path = getattr(self.server_args, "speculative_draft_model_path", None)
            if not path:
                return DraftFiles()
            self._draft_files = read_draft_files(str(path))
        return self._draft_files

    def ranks_speak_for_host(self) -> bool:
        """Whether this process says what is the same for every process of its host."""
        ranks, nodes = self.ranks, getattr(self.server_args, "nnodes", None)
        tp_size = ranks.tp_size or 1
        per_host = max(1, tp_size // nodes) if isinstance(nodes, int) and nodes > 0 else tp_size
        return (ranks.tp_rank or 0) % per_host == 0 and not ranks.dp_rank

    def _header(self) -> Header:
        versions = {name: installed_version(name) or "not installed" for name in _OTHER_PACKAGES}
        return Header(
            probe_version=__version__,
            sglang_version=self.release,
            versions=versions,
            pid=os.getpid(),
            role="scheduler",
            ranks=self.ranks,
            level=self.settings.level,
            patches=list(self.settings.patches),
            settings=self.settings.as_text(),
        )


def stop(message: str) -> None:
    """Say it in the log, then end the start-up.

    Raises:
        ProbeConfigurationError: always.
    """
    logger.error("eagle3-probe: %s", message)
    raise ProbeConfigurationError(message)
