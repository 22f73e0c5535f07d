"""What the names of the slots mean together, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.host.conventions import known_faults
from sglang_eagle3_probe.offline.comparing.finding_texts import FIXES, MEANINGS, TITLES
from sglang_eagle3_probe.offline.comparing.naming import Named
from sglang_eagle3_probe.offline.comparing.pairs import Alignment, Pairs

LAYER_IDS = "SGLANG_EAGLE3_PROBE_LAYER_IDS"


@dataclass(frozen=True)
class Finding:
    """One thing that is different, with what it means and what to do.

    Attributes:
        name: stable key, one of ``finding_texts.TITLES``.
        slots: that it is about, from 0; empty: all.
        evidence: numbers, in words.
    """

    name: str
    title: str
    slots: tuple[int, ...]
    evidence: str
    meaning: str
    fix: str


def findings_of(
    pairs: Pairs, slots: Sequence[Named], alignments: Sequence[Alignment]
) -> Iterator[Finding]:
    """Differences that concern all slots first, then those of single ones; none if all is alike."""
    shifts = {a.row_shift for a in alignments if a.row_shift}
    if shifts:
        yield _finding("row_shift", (), _row_shift(alignments))
    trained, served = pairs.trained.shape[1], pairs.served.shape[1]
    if trained != served:
        yield _finding(
            "slot_count", (), f"{trained} states were saved for training, {served} are served"
        )
    left = [slot for slot in slots if slot.name != "alike"]
    for found in (_permuted(slots), _shifted(slots)):
        if found is not None:
            name, members, evidence = found
            yield _finding(name, members, evidence, _layer_fix(pairs, slots, name))
            left = [slot for slot in left if slot.slot not in members]
    while left:
        group = [s for s in left if _key(s) == _key(left[0])]
        left = [s for s in left if s not in group]
        name = group[0].name
        key = f"{name}_{group[0].side}" if f"{name}_{group[0].side}" in TITLES else name
        fix = (
            _layer_fix(pairs, slots, key)
            if name in ("other_slot", "other_boundary", "embedding")
            else None
        )
        yield _finding(
            key, tuple(s.slot for s in group), "; ".join(_evidence(pairs, s) for s in group), fix
        )


def _key(slot: Named) -> tuple[object, ...]:
    return slot.name, slot.side


def _finding(name: str, slots: tuple[int, ...], evidence: str, fix: str | None = None) -> Finding:
    return Finding(name, TITLES[name], slots, evidence, MEANINGS[name], fix or FIXES[name])


def _permuted(slots: Sequence[Named]) -> tuple[str, tuple[int, ...], str] | None:
    """Slots that are each another slot, and together a permutation of the list."""
    moved = [s for s in slots if s.name == "other_slot"]
    places = tuple(s.slot for s in moved)
    if len(moved) < 2 or sorted(s.other for s in moved) != sorted(places):
        return None
    if len({s.side for s in moved}) != 1:
        return None
    return "permuted", places, "; ".join(_other_slot(s) for s in moved)


def _other_slot(slot: Named) -> str:
    if slot.side == "trained":
        return f"trained slot {slot.slot} is served slot {slot.other} ({_left(slot)})"
    if slot.of == "boundary":
        return f"served slot {slot.slot} holds the boundary of slot {slot.other} ({_left(slot)})"
    return f"served slot {slot.slot} is trained slot {slot.other} ({_left(slot)})"


def _shifted(slots: Sequence[Named]) -> tuple[str, tuple[int, ...], str] | None:
    """All slots whose trained boundary is certain lie equally far from the served one."""
    away = {
        s.slot: s.trained_boundary - s.boundary
        for s in slots
        if s.trained_boundary is not None and s.side == "trained"
    }
    named = [s for s in slots if s.name in ("other_boundary", "other_slot", "embedding")]
    places = tuple(s.slot for s in named if away.get(s.slot))
    steps = {away[place] for place in places}
    if len(places) < 2 or len(steps) != 1 or len(places) < len(slots) or abs(*steps) != 1:
        return None
    step = steps.pop()
    text = "; ".join(
        f"slot {s.slot} serves boundary {s.boundary}, trained was {s.trained_boundary} ({_left(s)})"
        for s in named
    )
    return ("one_late" if step < 0 else "one_early"), places, text


def _layer_fix(pairs: Pairs, slots: Sequence[Named], name: str) -> str | None:
    """The list to serve, where the boundary of every trained slot is certain."""
    if name.endswith("_served"):
        return None
    known = [s.boundary if s.name == "alike" else s.trained_boundary for s in slots]
    if None in known or len(known) != pairs.trained.shape[1] or len(known) < 1:
        return None
    ids = ",".join(str(h - 1) for h in known if h is not None)
    return (
        f"serve the boundaries {known} that the draft was trained on: {LAYER_IDS}={ids} (output "
        "ids, in this order), or the same list in the draft's config in the unit that its target "
        "class reads (sglang-eagle3-probe doctor --explain-ids)."
    )


def _left(slot: Named) -> str:
    own = f"error {slot.error.median:.3g} in its own place"
    if slot.explained is None:
        return own
    second = f", next best {slot.second:.3g}" if slot.second is not None else ""
    return f"error {slot.explained:.3g}{second}, {own}"


def _evidence(pairs: Pairs, slot: Named) -> str:
    """One slot's numbers in words."""
    head = f"slot {slot.slot} (boundary {slot.boundary})"
    if slot.name == "moved_rows" and slot.moved is not None:
        return f"{head}: {_moved(slot)}"
    if slot.name == "scaled" and slot.factor is not None:
        return f"{head}: served = {slot.factor:.4g} x trained ({_left(slot)})"
    if slot.name == "other_slot":
        return _other_slot(slot)
    if slot.name in ("other_boundary", "embedding"):
        what = f"boundary {slot.other}" if slot.other else "the embedding output"
        return f"{head}: the {slot.side} rows are {what} ({_left(slot)})"
    if slot.name == "normed":
        return f"{head}: the {slot.side} rows are a norm of boundary {slot.other} ({_left(slot)})"
    text = (
        f"{head}: relative error {slot.error.median:.3g} ({slot.error.low:.3g} to "
        f"{slot.error.high:.3g}), cosine {slot.cosine.median:.4f}, norm served/trained "
        f"{slot.norm_ratio.median:.3g}"
    )
    if slot.name in ("partial_sum", "missing_residual", "overwritten", "undecided"):
        known = known_faults(pairs.info.target_class, pairs.info.sglang or "0")
        text += "".join(
            f"; {pairs.info.target_class} in SGLang {pairs.info.sglang}: {fault.what}"
            for fault in known
        )
    if slot.name == "undecided" and slot.best:
        nearest = ", ".join(f"{kind} {i} ({error:.3g})" for kind, i, error in slot.best)
        text += f"; nearest served states to the trained ones: {nearest}"
    if slot.name == "undecided" and slot.outliers:
        text += (
            f"; {slot.outliers} rows are far off, at positions "
            f"{', '.join(map(str, slot.outlying_positions))}"
        )
    if slot.prompt_error is not None and slot.decoded_error is not None:
        text += f"; prompt {slot.prompt_error:.3g}, verify rounds {slot.decoded_error:.3g}"
    return text


def _moved(slot: Named) -> str:
    moved = slot.moved
    assert moved is not None
    where = f"{moved.back} tokens earlier" if moved.back > 0 else (
        f"{-moved.back} tokens later" if moved.back else "other tokens, at no common distance"
    )  # fmt: skip
    return (
        f"{moved.rows} of {moved.of} rows hold the state of {where} ({moved.decoded} of them in "
        f"verify rounds; positions {', '.join(map(str, moved.positions))}"
        f"{', ...' if moved.rows > len(moved.positions) else ''})"
    )


def _row_shift(alignments: Sequence[Alignment]) -> str:
    return "; ".join(
        f"{a.sample}: the rows fit {abs(a.row_shift)} {'after' if a.row_shift > 0 else 'before'} "
        f"the ids that {a.producer} pairs them with"
        for a in alignments
        if a.row_shift
    )
