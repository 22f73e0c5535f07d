"""The static rules on what this server loaded: configs, headers, and the arguments in force.

Starts once the draft is loaded and the layer ids are set, in whichever order a release does it, so
that a server which then dies in graph capture has said why; at the latest when the scheduler is
made. The scheduler's thread only picks up attributes. Files are read, and rules run, on a thread of
its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checkpoint.live import LiveFacts
from ..host.call import Call
from ..host.model_folder import local_model
from ..host.session import Session
from ..host.wrapping import Tap
from .draft_built import draft_runner, target_runner
from .scheduler_start import INTERESTING, asked_arguments, launch_command, plain

JUDGED = (
    *INTERESTING,
    "enforce_disable_flashinfer_allreduce_fusion",
    "speculative_draft_kv_cache_dtype",
    "speculative_use_rejection_sampling",
)
"""Server arguments that static rules look at."""
FLOAT8 = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
"""torch's name of a KV cache dtype -> the name SGLang's argument has for it."""


@dataclass(frozen=True)
class Served:
    """What the scheduler's thread picks up; everything else happens later and elsewhere."""

    target: str
    target_revision: str | None
    draft: str
    draft_revision: str | None
    overrides: str
    """``--json-model-override-args`` as given."""
    arguments: Mapping[str, Any]
    """In force."""
    quantization_given: bool | None
    """Whether the draft's quantization was given; ``None`` where the release does not keep it."""
    trained_output_ids: tuple[int, ...] | None
    live: LiveFacts


class StaticFindingsTap:
    """Three taps; the work starts once, at the first that finds everything in place."""

    def __init__(self, session: Session) -> None:
        self._session = session
        site = session.guard.site("static_findings")
        self._thread_site = session.guard.site("static_rules")
        self._started = False
        self._worker: Any = None
        self.built = Tap(site, after=self._built)
        self.layer_ids = Tap(site, after=self._layer_ids)
        self.scheduler = Tap(site, after=self._scheduler)

    def _built(self, call: Call, _result: Any) -> None:
        self._worker = call.instance
        self._start_when_wired()

    def _layer_ids(self, _call: Call, _result: Any) -> None:
        self._start_when_wired()

    def _start_when_wired(self) -> None:
        # 0.5.23 sets the layer ids after it has built the draft worker.
        if self._worker is not None and self._session.layer_ids is not None:
            self._start(self._worker)

    def _scheduler(self, call: Call, _result: Any) -> None:
        worker = getattr(call.instance, "draft_worker", None)
        if self._worker is None and worker is not None:
            # The seam was not met: V2's worker holds the draft's, V1's is the draft's.
            self._worker = getattr(worker, "draft_worker", None) or worker
        if self._worker is not None:
            self._start(self._worker)

    def _start(self, worker: Any) -> None:
        if self._started:
            return
        self._started, self._worker = True, None
        session = self._session
        if not session.ranks_speak_for_host():
            return
        served = served_now(session, worker)
        if served is None:
            return
        threading.Thread(
            target=self._run, args=(served,), name="eagle3-probe-static-rules", daemon=True
        ).start()

    def _run(self, served: Served) -> None:
        with self._thread_site as site:
            site.check()
            self._judge(served)

    def _judge(self, served: Served) -> None:
        # Imported here: the rules are many small files, and the scheduler's thread reads none.
        from ..rules.static.at_load import describe, judge_files

        began = time.monotonic()
        release = self._session.release
        # Here and not earlier: some releases keep no command line, and /proc is a file.
        words = launch_command(self._session.server_args)
        asked = asked_arguments(words, JUDGED) if words else None
        judged = judge_files(
            target=local_model(served.target, served.target_revision),
            draft=local_model(served.draft, served.draft_revision),
            release=release,
            arguments=as_meant(served.arguments, served.quantization_given, asked or {}),
            asked=asked,
            overrides=served.overrides,
            trained_output_ids=served.trained_output_ids,
            live=served.live,
        )
        record = describe(judged, served.target, served.draft, time.monotonic() - began)
        self._session.emit(record)
        for finding in record.findings:
            if finding.severity != "note":
                self._session.warn(
                    "%s %s: %s. Fix: %s",
                    finding.code,
                    finding.severity,
                    finding.message,
                    finding.fix,
                )
        if not record.rules:
            self._session.say("static rules did not run: %s", " ".join(record.notes))
            return
        counts = [f.severity for f in record.findings]
        self._session.say(
            "%d static rules on the files of target and draft: %d errors, %d warnings, %d notes, "
            "%d not decided",
            record.rules,
            counts.count("error"),
            counts.count("warning"),
            counts.count("note"),
            len(record.unknown),
        )


def served_now(session: Session, worker: Any) -> Served | None:
    """What is served, by attributes alone; ``None`` without a draft."""
    args = session.server_args
    draft = getattr(args, "speculative_draft_model_path", None)
    target = getattr(args, "model_path", None)
    if not draft or not target:
        return None
    return Served(
        target=str(target),
        target_revision=_text(getattr(args, "revision", None)),
        draft=str(draft),
        draft_revision=_text(getattr(args, "speculative_draft_model_revision", None)),
        overrides=_text(getattr(args, "json_model_override_args", None)) or "",
        arguments=arguments_in_force(args, worker),
        quantization_given=getattr(args, "_speculative_draft_quantization_explicitly_set", None),
        trained_output_ids=session.settings.trained_layer_ids,
        live=live_facts(session),
    )


def arguments_in_force(args: Any, worker: Any) -> dict[str, Any]:
    """Server arguments after SGLang's own adjustments, with what only the loaded models know."""
    found = {name: plain(getattr(args, name, None)) for name in JUDGED}
    for name in ("speculative_num_steps", "speculative_num_draft_tokens"):
        value = getattr(worker, name, None)
        if isinstance(value, int):
            found[name] = value
    target, draft = target_runner(worker), draft_runner(worker)
    config = getattr(target, "model_config", None)
    length = getattr(config, "context_len", None)
    if isinstance(length, int):
        found["context_length"] = length
    dtype = _dtype(getattr(config, "dtype", None))
    if dtype is not None and dtype == _dtype(
        getattr(getattr(draft, "model_config", None), "dtype", None)
    ):
        found["dtype"] = dtype
    if found.get("kv_cache_dtype") in (None, "auto"):
        held = _dtype(getattr(target, "kv_cache_dtype", None))
        found["kv_cache_dtype"] = FLOAT8.get(held or "", found.get("kv_cache_dtype"))
    return {name: value for name, value in found.items() if value is not None}


def as_meant(
    in_force: Mapping[str, Any], quantization_given: bool | None, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """With ``speculative_draft_model_quantization`` as the user meant it, so that rules can tell.

    SGLang turns an unset one into ``quantization``, and ``unquant`` into ``None``
    (``server_args.py`` 0.5.9, ``arg_groups/serving_hook.py`` 0.5.23).
    """
    name = "speculative_draft_model_quantization"
    found = dict(in_force)
    given = quantization_given if quantization_given is not None else name in asked
    if found.get("quantization") is None:
        return found
    if found.get(name) is None:
        found[name] = "unquant"
    elif not given and found[name] == found["quantization"]:
        del found[name]
    return found


def live_facts(session: Session) -> LiveFacts:
    """What the wiring records of this process prove."""
    ids, weights, held = session.layer_ids, session.weights, session.vocab_map
    fits = None
    if ids is not None and session.draft.fc_in_features is not None:
        widths = [plan.hidden_width for plan in session.plans.values()]
        fits = bool(widths) and len(ids.slots) * widths[0] == session.draft.fc_in_features
    # Without the record the seam was not met, and no patch of ours acts.
    patches = frozenset(session.settings.patches) if ids is not None else frozenset()
    if ids is not None and ids.source_patched:
        patches |= {"embedding_capture", "capture_order"}
    return LiveFacts(
        patches=patches,
        ids=tuple(ids.configured) if ids is not None and ids.configured is not None else None,
        ids_from=ids.configured_at if ids is not None else "",
        unit_was_set=session.settings.layer_ids_unit != "auto",
        boundaries=tuple(slot.boundary for slot in ids.slots) if ids is not None else None,
        states_fit_fc=fits,
        map_in_force=held.in_force if held is not None else None,
        not_taken=tuple(weights.not_taken) if weights is not None else None,
        not_filled=tuple(weights.not_filled) if weights is not None else None,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _dtype(value: Any) -> str | None:
    return str(value).removeprefix("torch.") if value is not None else None
