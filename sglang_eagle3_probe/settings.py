"""Every SGLANG_EAGLE3_PROBE_* variable: the only reader of ``os.environ`` in the package.

Variables, not objects, carry the configuration because SGLang spawns its schedulers: a child
inherits the environment and nothing else (SGLang 0.5.9 to 0.5.23, ``Engine._launch_subprocesses``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

PREFIX = "SGLANG_EAGLE3_PROBE"

PATCH_NAMES = ("embedding_capture", "capture_order", "ids_before_graphs")
LEVELS = ("wiring", "stats", "capture")
UNITS = ("auto", "output_id", "boundary")

Unit = Literal["auto", "output_id", "boundary"]


class SettingsError(ValueError):
    """A variable could not be read. The message names it, its text, what is expected, and a fix."""


@dataclass(frozen=True)
class Variable:
    """Documentation of one variable, kept beside its field so that the two cannot part."""

    name: str
    default: str
    values: str
    meaning: str


def _variable(field: str) -> str:
    return PREFIX if field == "enabled" else f"{PREFIX}_{field.upper()}"


@dataclass(frozen=True)
class Settings:
    """The probe's configuration in one process. Build it with ``Settings.from_environment``."""

    enabled: bool = False
    dir: str = "probe-logs"
    level: str = "wiring"
    patches: tuple[str, ...] = PATCH_NAMES
    layer_ids: tuple[int, ...] | None = None
    layer_ids_unit: Unit = "auto"
    trained_layer_ids: tuple[int, ...] | None = None
    full_vocab_map: bool = False
    stats_rows: bool = False
    refusal_every: int = 0
    capture_first: int = 8
    capture_every: int = 256
    capture_mb: int = 4096
    capture_buffer_mb: int = 256
    all_layers: int = 0
    queue_records: int = 8192
    file_mb: int = 64
    files: int = 4
    fault_limit: int = 3
    fail_site: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read every variable.

        Raises:
            SettingsError: a value cannot be read, or a variable with our prefix is unknown.
        """
        source = os.environ if environ is None else environ
        known = {_variable(f.name): f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for variable, text in source.items():
            if not variable.startswith(PREFIX):
                continue
            if variable not in known:
                raise SettingsError(
                    f"{variable}={text!r} is not a variable of sglang-eagle3-probe. "
                    f"Known: {', '.join(sorted(known))}. Fix: correct the name or unset it."
                )
            if text.strip():
                values[known[variable]] = _READERS[known[variable]](variable, text.strip())
        chosen = cls(**values)
        if chosen.all_layers and chosen.level != "capture":
            raise SettingsError(
                f"{_variable('all_layers')}={chosen.all_layers} needs level capture; "
                f"{_variable('level')} is {chosen.level}. "
                f"Fix: set {_variable('level')}=capture, or unset {_variable('all_layers')}."
            )
        return chosen

    def as_text(self) -> dict[str, str]:
        """Variable -> text in force, for the trace header."""
        return {_variable(f.name): _text(getattr(self, f.name)) for f in fields(self)}


def is_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the probe is on, without reading (or rejecting) anything else."""
    text = (os.environ if environ is None else environ).get(PREFIX, "").strip()
    return bool(text) and _flag(PREFIX, text)


def enable() -> None:
    """Turn the probe on for this process and every process it spawns from now on."""
    os.environ[PREFIX] = "1"


def set_directory(directory: str) -> None:
    """Choose the trace folder, as an absolute path: children may run elsewhere."""
    os.environ[_variable("dir")] = os.path.abspath(directory)


def capture_all_layers(requests: int) -> None:
    """Choose level ``capture``, with all boundaries for that many requests."""
    os.environ[_variable("level")] = "capture"
    os.environ[_variable("all_layers")] = str(requests)


def hub_cache() -> Path:
    """Hugging Face's local cache, where its own variables say it is."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(str(v) for v in value)
    return str(value)


def _flag(variable: str, text: str) -> bool:
    lowered = text.lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off"}:
        return False
    raise SettingsError(f"{variable}={text!r} is neither on nor off. Fix: set it to 1 or 0.")


def _count(variable: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise SettingsError(
            f"{variable}={text!r} is not a whole number of at least 1. Fix: set one."
        )
    return int(text)


def _whole(variable: str, text: str) -> int:
    if not text.isdecimal():
        raise SettingsError(
            f"{variable}={text!r} is not a whole number of at least 0. Fix: set one."
        )
    return int(text)


def _ids(variable: str, text: str) -> tuple[int, ...]:
    parts = [p.strip() for p in text.strip("[]() ").split(",")]
    try:
        return tuple(int(p) for p in parts)
    except ValueError:
        raise SettingsError(
            f"{variable}={text!r} is not a list of layer ids. "
            "Fix: write whole numbers separated by commas, such as -1,2,30."
        ) from None


def _one_of(allowed: tuple[str, ...]) -> Any:
    def read(variable: str, text: str) -> str:
        if text not in allowed:
            raise SettingsError(
                f"{variable}={text!r} is not one of {', '.join(allowed)}. Fix: set one of them."
            )
        return text

    return read


def _patches(variable: str, text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    names = tuple(p.strip() for p in text.split(",") if p.strip())
    unknown = [n for n in names if n not in PATCH_NAMES]
    if unknown:
        raise SettingsError(
            f"{variable}={text!r} names no patch of ours: {', '.join(unknown)}. "
            f"Fix: use none, or any of {', '.join(PATCH_NAMES)}."
        )
    return names


_READERS: dict[str, Any] = {
    "enabled": _flag,
    "dir": lambda _v, text: text,
    "level": _one_of(LEVELS),
    "patches": _patches,
    "layer_ids": _ids,
    "layer_ids_unit": _one_of(UNITS),
    "trained_layer_ids": _ids,
    "full_vocab_map": _flag,
    "stats_rows": _flag,
    "refusal_every": _whole,
    "capture_first": _whole,
    "capture_every": _whole,
    "capture_mb": _count,
    "capture_buffer_mb": _count,
    "all_layers": _whole,
    "queue_records": _count,
    "file_mb": _count,
    "files": _count,
    "fault_limit": _count,
    "fail_site": lambda _v, text: text,
}

_MEANINGS: dict[str, tuple[str, str]] = {
    "enabled": ("1 or 0", "Switches the probe on. `--enable-probe` sets it."),
    "dir": (
        "a folder",
        "Where trace files go; made if missing. `--probe-dir` sets it. One file per process.",
    ),
    "level": (
        "wiring, stats or capture",
        "How much is recorded; each level includes the ones before it. "
        "`stats` adds values of the tapped tensors, also under CUDA graphs. `capture` also writes "
        "the states of some requests to files, see docs/capture.md.",
    ),
    "patches": (
        "none, or names separated by commas",
        "Which behaviour patches apply: `embedding_capture` (a list that holds -1 is read as "
        "output ids and the embedding is captured), `capture_order` (the concatenation "
        "follows the list when it is not ascending) and `ids_before_graphs` (SGLang up to "
        "0.5.10.post1: CUDA graphs are captured with the configured ids, not the default ones).",
    ),
    "layer_ids": (
        "such as -1,2,30",
        "Aux layer ids, in place of those in the draft's config. Their number must match the "
        "draft's `fc`.",
    ),
    "layer_ids_unit": (
        "auto, output_id or boundary",
        "How the list of layer ids in force is read (the variable's or the draft config's). "
        "`auto`: output ids if it holds -1, otherwise as the target's class reads it.",
    ),
    "trained_layer_ids": (
        "such as -1,2,30",
        "What the draft was trained on, as output ids in training order, if you know. The report "
        "compares it with what is served. Without it the probe looks for "
        "`trained_on_output_ids` in `trainer_accuracy.json` beside the draft's weights.",
    ),
    "full_vocab_map": ("1 or 0", "Write the whole hot_token_id map, not only its digest."),
    "stats_rows": (
        "1 or 0",
        "Level `stats`: write every row of the aux states, not only windows. Many megabytes.",
    ),
    "refusal_every": (
        "a count, 0 for the default",
        "Level `stats`: of so many verify rounds one is looked at for why drafts were refused; 1 "
        "looks at every round. By default one in five, at most twenty a second.",
    ),
    "capture_first": (
        "a count",
        "Level `capture`: so many requests are captured from the start of the server.",
    ),
    "capture_every": (
        "a count, 0 for none",
        "Level `capture`: after the first ones, one request in so many is captured.",
    ),
    "capture_mb": (
        "megabytes",
        "Level `capture`: what the capture files of one process may take. When it is reached, no "
        "more are written, and the log says so.",
    ),
    "capture_buffer_mb": (
        "megabytes",
        "Level `capture`: memory on each GPU, and as much in pinned host memory, through which "
        "states leave the device. What does not fit at once is lost and counted.",
    ),
    "all_layers": (
        "a count",
        "Level `capture`: the first so many captured requests also get every boundary of the "
        "target (embedding to last, and the final norm), for infer-layers. Takes as much memory "
        "again as `CAPTURE_BUFFER_MB` on each GPU. `--probe-all-layers` sets it, and the level.",
    ),
    "queue_records": (
        "a count",
        "Records waiting for the writer thread at most; more are dropped and counted.",
    ),
    "file_mb": ("megabytes", "A trace file that grows past this is continued in a new part."),
    "files": ("a count", "Parts kept per process; the first part (wiring) and the newest stay."),
    "fault_limit": ("a count", "A tap that raised this often switches itself off."),
    "fail_site": (
        "names of taps, separated by commas",
        "For tests: these taps raise on every call, to show that the server does not mind.",
    ),
}


def variables() -> list[Variable]:
    """One row per variable, in the order of the fields; docs/configuration.md is made of it."""
    defaults = Settings()
    return [
        Variable(
            name=_variable(f.name),
            default=_text(getattr(defaults, f.name)) or "(unset)",
            values=_MEANINGS[f.name][0],
            meaning=_MEANINGS[f.name][1],
        )
        for f in fields(Settings)
    ]
