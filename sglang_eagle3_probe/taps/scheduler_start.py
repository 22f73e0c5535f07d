"""Around ``Scheduler.__init__``: ranks on entry; arguments and the seam report on return."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..host.call import Call
from ..host.ranks import current_ranks
from ..host.session import Session
from ..host.versions import NEWEST_PROVED, OLDEST_PROVED, is_proved
from ..host.wrapping import Installer, Tap
from ..trace.records import Arguments, Seams
from .draft_built import vocab_size

INTERESTING = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_token_map",
    "speculative_attention_mode",
    "speculative_draft_attention_backend",
    "speculative_draft_model_quantization",
    "speculative_draft_window_size",
    "speculative_adaptive",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "context_length",
    "chunked_prefill_size",
    "max_running_requests",
    "page_size",
    "tp_size",
    "dp_size",
    "pp_size",
    "enable_dp_attention",
    "enable_two_batch_overlap",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "disable_cuda_graph",
    "enable_return_hidden_states",
    "device",
)
"""Server arguments that decide what speculation computes, by SGLang's own names."""


_STATE_WORDS = {
    "patched": "patched",
    "not_imported": "not imported by this process",
    "absent": "not in this release",
    "failed": "FAILED",
}


class SchedulerStartTap:
    """First and last word of start-up."""

    def __init__(self, session: Session, installer: Installer) -> None:
        self._session = session
        self._installer = installer
        self.ranks = Tap(session.guard.site("ranks"), before=self._before)
        self.arguments = Tap(session.guard.site("arguments"), after=self._arguments)
        self.seams = Tap(session.guard.site("seams"), after=self._seams)

    def _before(self, call: Call) -> None:
        session = self._session
        session.server_args = call.get("server_args")
        names = ("server_args", "tp_rank", "dp_rank", "pp_rank")
        session.ranks = current_ranks({name: call.get(name) for name in names})

    def _arguments(self, call: Call, _result: Any) -> None:
        session = self._session
        scheduler = call.instance
        server_args = call.get("server_args")
        worker = getattr(scheduler, "draft_worker", None)
        target = _model(getattr(scheduler, "tp_worker", None))
        _note_target_logits(session, target)
        in_force = {name: plain(getattr(server_args, name, None)) for name in INTERESTING}
        # The worker's own numbers win: adaptive speculation and topk = 1 change them.
        for name in ("speculative_num_steps", "speculative_num_draft_tokens"):
            value = getattr(worker, name, None)
            if isinstance(value, int):
                in_force[name] = value
        files = session.draft_files
        config = _text_config(target)
        record = Arguments(
            asked=asked_arguments(launch_command(server_args)),
            in_force={name: value for name, value in in_force.items() if value is not None},
            target_architecture=type(target).__name__ if target is not None else "",
            draft_architecture=session.draft.model_class or files.architecture,
            target_path=str(getattr(server_args, "model_path", "") or ""),
            draft_path=str(getattr(server_args, "speculative_draft_model_path", "") or ""),
            target_num_layers=_number(config, "num_hidden_layers"),
            target_hidden_size=_number(config, "hidden_size"),
            target_vocab_size=vocab_size(target),
            draft_hidden_size=_whole(files.config.get("hidden_size")),
            draft_vocab_size=_whole(files.config.get("draft_vocab_size")),
            worker_class=type(worker).__name__ if worker is not None else "",
            worker_generation=_generation(worker),
        )
        session.emit(record)
        session.say(
            "%s with draft %s: algorithm %s, steps %s, topk %s, draft tokens %s (%s)",
            record.target_architecture,
            record.draft_architecture or "none",
            in_force.get("speculative_algorithm"),
            in_force.get("speculative_num_steps"),
            in_force.get("speculative_eagle_topk"),
            in_force.get("speculative_num_draft_tokens"),
            record.worker_class or "no draft worker",
        )

    def _seams(self, _call: Call, _result: Any) -> None:
        session = self._session
        states = self._installer.states()
        session.emit(Seams(seams=states, release_proved=is_proved(session.release)))
        by_state: dict[str, list[str]] = {}
        for state in states:
            names = by_state.setdefault(_STATE_WORDS[state.state], [])
            if state.name not in names:
                names.append(state.name)
        session.say(
            "SGLang %s, seams %s; level %s, trace in %s",
            session.release,
            "; ".join(f"{words}: {', '.join(names)}" for words, names in by_state.items()),
            session.settings.level,
            Path(session.settings.dir).absolute(),
        )
        if not is_proved(session.release):
            session.say(
                "SGLang %s is not among the releases the seams were checked on (%s to %s); what is "
                "patched fitted by name and signature, and is unproved",
                session.release,
                OLDEST_PROVED,
                NEWEST_PROVED,
            )
        for state in states:
            if state.state == "failed" or (state.state == "patched" and state.why):
                session.say(
                    "seam %s (%s): %s: %s; without it: %s",
                    state.name,
                    state.target,
                    state.state,
                    state.why,
                    ", ".join(state.used_by),
                )


def launch_command(server_args: Any) -> Sequence[str]:
    """The words of the command line that started the server; empty for ``sglang.Engine``.

    ``ServerArgs._launch_command`` where the release keeps it (a text, 0.5.20 and later; it has the
    arguments of a --config file too), else the parent's command line as the kernel has it.
    """
    kept = getattr(server_args, "_launch_command", None)
    if isinstance(kept, str):
        # Joined by single blanks upstream, so a value with a blank in it comes apart; none of the
        # arguments looked for here has such values.
        return kept.split()

    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return [word for word in text.split("\0") if word]


def asked_arguments(words: Sequence[str], names: Sequence[str] = INTERESTING) -> dict[str, Any]:
    """Those arguments among the words of a command line, as they were written."""
    asked: dict[str, Any] = {}
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, equals, value = word[2:].partition("=")
        name = flag.replace("-", "_")
        if name not in names:
            continue
        following = words[position + 1] if position + 1 < len(words) else "--"
        if equals:
            asked[name] = value
        else:
            asked[name] = True if following.startswith("--") else following
    return asked


def plain(value: Any) -> Any:
    """A value that JSON can hold; enums by value, anything else by its text."""
    value = getattr(value, "value", value)
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def _note_target_logits(session: Session, target: Any) -> None:
    """The target's logits processor, also when no aux layers were ever set (algorithm EAGLE)."""
    for holder in (target, getattr(target, "language_model", None)):
        processor = getattr(holder, "logits_processor", None)
        if processor is not None:
            session.target_logits.add(processor)


def _model(worker: Any) -> Any:
    return getattr(getattr(worker, "model_runner", None), "model", None)


def _text_config(target: Any) -> Any:
    config = getattr(target, "config", None)
    return getattr(config, "text_config", None) or config


def _number(config: Any, name: str) -> int | None:
    return _whole(getattr(config, name, None))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _generation(worker: Any) -> Literal["V1", "V2", "unknown"]:
    name = type(worker).__name__ if worker is not None else ""
    if name.endswith("V2"):
        return "V2"
    return "V1" if name == "EAGLEWorker" else "unknown"
