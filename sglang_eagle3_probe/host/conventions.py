"""How SGLang turns a draft's layer ids into boundaries, per target class and release; and vLLM.

Pure functions on tables: no SGLang, no ``packaging``. Units: boundary h (0 = embedding output,
i = stream entering layer i, N = before the final norm) and output id o = h - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.host.producers import Producer, recognise_producer
from sglang_eagle3_probe.host.target_classes import (
    BY_NAME,
    CLASSES,
    NEWEST_READ,
    OLDEST_READ,
    OWN_FORWARD,
    WITHOUT_SETTER,
    Fault,
    Reach,
    Reading,
    Release,
    TargetClass,
)

OLDEST_WITH_DIFFS: Release = (0, 5, 9)
"""The first release with source diffs; the newest is the newest that was read."""

__all__ = [
    "CLASSES",
    "NEWEST_READ",
    "OLDEST_READ",
    "Fault",
    "Producer",
    "Reach",
    "Reading",
    "Release",
    "TargetClass",
    "Unserved",
    "by_source_diffs",
    "captured",
    "classes_of",
    "default_boundaries",
    "embedding_by_probe",
    "ids_to_write",
    "known_faults",
    "lookup",
    "order_by_probe",
    "output_ids",
    "reach",
    "reading",
    "recognise_producer",
    "release",
    "sglang_boundaries",
    "tensorrt_llm_ids",
    "vllm_boundaries",
]


def release(text: str) -> Release:
    """``0.5.13.post1`` -> (0, 5, 13); post and pre parts do not matter to the tables here."""
    numbers: list[int] = []
    for part in text.strip().lstrip("v").split(".")[:3]:
        digits = ""
        for sign in part[:6]:
            if not ("0" <= sign <= "9"):
                break
            digits += sign
        if not digits:
            break
        numbers.append(int(digits))
        if len(digits) != len(part):
            break
    if len(numbers) < 2:
        raise ValueError(f"{text[:40]!r} is no SGLang release, expected one such as 0.5.23")
    return (numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0)


def lookup(target_class: str | None) -> TargetClass | None:
    """The row of an architecture, inherited ones included."""
    return BY_NAME.get(target_class or "")


def classes_of(file: str) -> tuple[str, ...]:
    """Architectures whose setter is in this model file."""
    return tuple(name for name, row in BY_NAME.items() if row.file == file)


@dataclass(frozen=True)
class Unserved:
    """Why there are no boundaries: this class and release cannot serve, or are not known."""

    why: str
    certain: bool
    """False: the class is outside what was read; a look at the running server decides."""


def _row(target_class: str | None, sglang: str) -> TargetClass | Unserved:
    at = release(sglang)
    row = lookup(target_class)
    name = target_class or "the target"
    if row is None:
        known = target_class in WITHOUT_SETTER and OLDEST_READ <= at <= NEWEST_READ
        return Unserved(
            f"{name} has no set_eagle3_layers_to_capture in SGLang {sglang}, so EAGLE3 stops with "
            "ValueError at start"
            if known
            else f"{name} is not among the target classes whose handling of layer ids was read",
            certain=known,
        )
    if at < OLDEST_READ:
        return Unserved(f"SGLang {sglang} is older than what was read (0.5.6)", certain=False)
    if at < row.first:
        return Unserved(
            f"{name} has no set_eagle3_layers_to_capture in SGLang {sglang}; it came with "
            f"{'.'.join(map(str, row.first))}",
            certain=True,
        )
    return row


def reading(target_class: str | None, sglang: str) -> Reading | None:
    """What is done to an explicit list; None: not known."""
    row = _row(target_class, sglang)
    if isinstance(row, Unserved):
        return None
    at = release(sglang)
    return [rule for since, rule in row.rule if since <= at][-1]


def default_boundaries(target_class: str | None, num_layers: int) -> tuple[int, ...]:
    """Boundaries in force without a list; the same in every release."""
    row = lookup(target_class)
    shift = row.default_shift if row else 0
    return tuple(h + shift for h in (2, num_layers // 2, num_layers - 3))


def sglang_boundaries(
    target_class: str | None, sglang: str, ids: Sequence[int] | None, num_layers: int
) -> tuple[int, ...] | Unserved:
    """Boundaries that the setter makes of a list, in the list's order and unchecked for range.

    What reaches the draft is ``captured`` of them: ascending and once each.
    """
    row = _row(target_class, sglang)
    if isinstance(row, Unserved):
        return row
    if ids is None:
        return default_boundaries(target_class, num_layers)
    rule = reading(target_class, sglang)
    as_is = (rule == "as is unless the first is 1" and bool(ids) and ids[0] != 1) or (
        rule == "as is if the largest is N" and bool(ids) and max(ids) == num_layers
    )
    return tuple(ids) if as_is else tuple(o + 1 for o in ids)


def reach(target_class: str | None, sglang: str, boundary: int, num_layers: int) -> Reach:
    """What becomes of one boundary in this class and release."""
    row = _row(target_class, sglang)
    if isinstance(row, Unserved):
        return "unknown"
    at = release(sglang)
    lost: Reach = "crash" if row.strict_since is not None and at >= row.strict_since else "lost"
    if any(f.captures_nothing and f.since <= at <= f.until for f in row.faults):
        return "lost"
    if boundary == 0:
        if not row.embedding_known:
            return "unknown"
        since = row.embedding_since
        return "captured" if since is not None and at >= since else "crash"
    if 0 < boundary < num_layers:
        return "captured"
    if boundary == num_layers and row.last_since is not None and at >= row.last_since:
        return "captured"
    return row.past_end if boundary > 0 and row.past_end != "lost" else lost


def captured(
    target_class: str | None, sglang: str, boundaries: Sequence[int], num_layers: int
) -> tuple[int, ...]:
    """Boundaries that reach the draft, in the order in which they are concatenated."""
    return tuple(
        h
        for h in sorted(set(boundaries))
        if reach(target_class, sglang, h, num_layers) == "captured"
    )


def known_faults(target_class: str | None, sglang: str) -> tuple[Fault, ...]:
    """What is wrong with this class's capture in this release, whatever the ids."""
    row = _row(target_class, sglang)
    if isinstance(row, Unserved):
        return ()
    at = release(sglang)
    return tuple(f for f in row.faults if f.since <= at <= f.until)


def order_by_probe(target_class: str | None) -> bool:
    """Whether the probe reads a list with -1 as output ids and keeps the order of any list."""
    row = lookup(target_class)
    return row is not None and row.probed != "nothing"


def embedding_by_probe(target_class: str | None) -> bool:
    """Whether boundary 0 comes out right with the probe, from 0.5.9 on."""
    row = lookup(target_class)
    return (
        row is not None and row.probed == "order and embedding" and target_class not in OWN_FORWARD
    )


def by_source_diffs(target_class: str | None, sglang: str) -> bool:
    """Whether there are source diffs for this class and release: they read a list with -1 as output
    ids, keep the order of any list, and capture boundary 0 (``patches/sglang``)."""
    row = lookup(target_class)
    if row is None or row.file not in ("deepseek_v2", "kimi_k25"):
        return False
    return max(OLDEST_WITH_DIFFS, row.first) <= release(sglang) <= NEWEST_READ


def ids_to_write(
    target_class: str | None, sglang: str, boundaries: Sequence[int], num_layers: int
) -> tuple[int, ...] | Unserved:
    """The list to write under ``eagle_config`` so that these boundaries are captured."""
    wanted = tuple(boundaries)
    for ids in (tuple(h - 1 for h in wanted), wanted):
        made = sglang_boundaries(target_class, sglang, ids, num_layers)
        if isinstance(made, Unserved):
            return made
        if made == wanted:
            return ids
    return Unserved(
        f"no list makes {target_class} of SGLang {sglang} capture boundaries {list(wanted)}",
        certain=True,
    )


def output_ids(boundaries: Sequence[int]) -> tuple[int, ...]:
    """Boundaries as output ids."""
    return tuple(h - 1 for h in boundaries)


def vllm_boundaries(ids: Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    """What vLLM (0.33) captures for a list: the ids are boundaries, ascending and once each."""
    return (2, num_layers // 2, num_layers - 3) if ids is None else tuple(sorted(set(ids)))


def tensorrt_llm_ids(boundaries: Sequence[int]) -> tuple[int, ...] | None:
    """``eagle3_layers_to_capture`` of TensorRT-LLM's arguments (PyTorch back end) for boundaries.

    A set of output ids, concatenated ascending; it reads no list from the draft's config. None:
    the embedding cannot be asked for, as -1 there is the state after the final norm.
    """
    return None if 0 in boundaries else tuple(sorted({h - 1 for h in boundaries}))
