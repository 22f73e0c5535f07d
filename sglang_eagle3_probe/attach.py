"""Binds handlers to seams and installs them: the one place where the parts come together."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import TYPE_CHECKING

from .host.command_line import CommandLineHandler
from .host.cost import CostBook
from .host.seams import MAIN_SEAMS, SCHEDULER_SEAMS, Seam, seams_for
from .host.session import Session
from .host.versions import installed_release
from .host.wrapping import Handler, Installer
from .settings import Settings

if TYPE_CHECKING:
    from .taps.acceptance import AcceptanceTap


def attach_command_line() -> Installer:
    """Add the flags in the process that parses the command line. Nothing else is wrapped there."""
    installer = Installer({"command_line": [CommandLineHandler()]})
    installer.install(MAIN_SEAMS)
    return installer


def attach_scheduler(settings: Settings) -> Session:
    """Patch and instrument this process, as SGLang imports the targets."""
    from .patches.capture import CaptureOrderPatch, DelegationPatch, LayerIdsPatch
    from .patches.embedding_copy import EmbeddingCopy
    from .patches.ids_before_graphs import NAME, RunnerIds, SetterIds
    from .taps.acceptance import AcceptanceTap
    from .taps.aux_states import AuxStatesTap
    from .taps.draft_built import DraftBuiltTap
    from .taps.draft_forward import DraftForwardTap
    from .taps.draft_load import DraftLoadTap
    from .taps.draft_vocabulary import DraftVocabulary
    from .taps.metrics import MetricsTap
    from .taps.requests import RequestEndTap
    from .taps.scheduler_start import SchedulerStartTap
    from .taps.static_findings import StaticFindingsTap
    from .taps.target_extend import TargetExtendTap

    session = Session(settings)
    handlers: dict[str, list[Handler]] = {}
    installer = Installer(handlers, {"embedding_copy": EmbeddingCopy()})
    installer.cost.when_due = _cost_reporter(session, installer.cost)
    start = SchedulerStartTap(session, installer)
    extend = TargetExtendTap(session)
    built = DraftBuiltTap(session)
    vocabulary = DraftVocabulary(session)
    acceptance = AcceptanceTap(session, vocabulary)
    static = StaticFindingsTap(session)
    early: list[Handler] = [SetterIds(session)] if NAME in settings.patches else []
    handlers.update(
        {
            # Seams last on return, so that the report comes after the arguments in the log.
            "scheduler_start": [
                start.seams,
                static.scheduler,
                start.arguments,
                start.ranks,
                MetricsTap(session).tap,
            ],
            "layer_ids": [static.layer_ids, *early, LayerIdsPatch(session)],
            "layer_ids_delegation": [DelegationPatch(session)],
            # The patch is outermost: the tap shows what goes on to the draft.
            "target_logits": [CaptureOrderPatch(session), AuxStatesTap(session).tap],
            "target_extend_v1": [extend.v1_target],
            "draft_extend_v1": [extend.v1_draft],
            "target_extend_v2": [extend.v2],
            "draft_forward": [DraftForwardTap(session).tap],
            "draft_weights": [DraftLoadTap(session)],
            # Outermost, so that what the others found goes before what files predict.
            "draft_built": [static.built, built.vocab_map, built.weights, vocabulary.tap],
            "verify_result": [acceptance.tap],
            "verify_result_v1": [acceptance.v1],
            "request_output": [RequestEndTap(session).tap],
        }
    )
    if early:
        handlers["target_loaded"] = [RunnerIds(session)]
    if settings.level != "wiring":
        _add_stats(session, handlers, acceptance)
    if settings.level == "capture":
        _add_capture(session, handlers)
    release = installed_release()
    rows: list[Seam] = seams_for(release, SCHEDULER_SEAMS)
    installer.install(rows)
    installer.note_absent([row for row in SCHEDULER_SEAMS if row not in rows], release)
    atexit.register(session.recorder.close, "process ended")
    return session


def _cost_reporter(session: Session, cost: CostBook) -> Callable[[], None]:
    site = session.guard.site("probe_cost")

    def report() -> None:
        if site.enabled:
            with site:
                site.check()
                session.emit(cost.take())

    return report


def _add_stats(
    session: Session, handlers: dict[str, list[Handler]], acceptance: AcceptanceTap
) -> None:
    """Level ``stats``: behind every other handler, closest to the host's own call.

    Times of phases are here although they need no device code of ours: five wrapped functions more
    a round took 100 us of the scheduler's thread on the H200 machine (docs/measurements).
    """
    from .taps.phase_times import PhaseTimesTap
    from .taps.refusals import RefusalsTap
    from .taps.slot_stats import SlotStatsTap

    refusals = RefusalsTap(session)
    acceptance.looked_at = refusals.looked_at
    stats = SlotStatsTap(session)
    times = PhaseTimesTap(session)
    session.on_target_model.append(stats.watch_embedding)
    more: dict[str, list[Handler]] = {
        "draft_built": [refusals.built],
        "target_logits": [refusals.logits, stats.target],
        "draft_forward": [stats.draft],
        "target_extend_v2": [refusals.prefill, stats.prefill],
        "verify_result": [refusals.resolve, stats.resolve],
        "verify_result_v1": [times.worker, stats.resolve],
        "request_output": [times.output],
        "worker_forward": [times.worker],
        "target_forward": [times.target],
        "verify_round": [times.verify, refusals.verify, stats.verify],
        "draft_round": [times.draft, stats.draft_round],
        "draft_steps": [refusals.steps, stats.draft_steps],
        "draft_extend_round": [times.extend, refusals.extend, stats.extend],
        "draft_extend_graph": [refusals.extend_graph],
    }
    for name, taps in more.items():
        handlers.setdefault(name, []).extend(taps)


def _add_capture(session: Session, handlers: dict[str, list[Handler]]) -> None:
    """Level ``capture``: innermost, so that states are taken as SGLang made them."""
    from .taps.capture import CaptureTap

    capture = CaptureTap(session)
    if session.settings.all_layers:
        session.on_target_model.append(capture.layers.watch)
    more: dict[str, list[Handler]] = {
        "draft_built": [capture.built],
        "target_logits": [capture.draft.logits],
        "target_extend_v2": [capture.prefill],
        "target_forward": [capture.target],
        "draft_round": [capture.draft.draft],
        "draft_steps": [capture.draft.begin],
        "draft_select": [capture.draft.select],
        "verify_round": [capture.verify],
        "verify_result": [capture.resolve],
        "request_output": [capture.end],
    }
    for name, taps in more.items():
        handlers.setdefault(name, []).extend(taps)
