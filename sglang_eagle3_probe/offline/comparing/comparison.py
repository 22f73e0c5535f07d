"""A capture against training states: every slot named, and what follows from all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.comparing.findings import Finding, findings_of
from sglang_eagle3_probe.offline.comparing.matching import match
from sglang_eagle3_probe.offline.comparing.naming import Named, name_slots
from sglang_eagle3_probe.offline.comparing.pairs import Alignment, Pairs
from sglang_eagle3_probe.offline.comparing.target_states import TargetFolder, with_target
from sglang_eagle3_probe.offline.comparing.training_states.found import Search


@dataclass(frozen=True)
class Comparison:
    """What was compared, slot by slot, and what it means.

    Attributes:
        answer: ``alike``; ``different``: something was named; ``undecided``: slots differ, or are
            not enough alike, and the numbers do not say why.
        trained_boundaries: h of the trained slots by their values, None where not certain.
    """

    pairs: Pairs
    alignments: tuple[Alignment, ...]
    slots: tuple[Named, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    answer: str

    @property
    def trained_boundaries(self) -> tuple[int | None, ...]:
        return tuple(
            slot.boundary
            if slot.trained_boundary is None and slot.name == "alike"
            else slot.trained_boundary
            for slot in self.slots
        )

    @property
    def exit_code(self) -> int:
        return 0 if self.answer == "alike" else 1


def compare(
    requests: Iterable[CapturedRequest], search: Search, target: TargetFolder | None = None
) -> Comparison:
    """Aligns by token ids, compares every slot, names the differences.

    Raises:
        CheckpointError: a file cannot be read, or too few tokens are on both sides.
    """
    matched = match(requests, search)
    pairs = matched.pairs if target is None else with_target(matched.pairs, target)
    slots = name_slots(pairs)
    findings = tuple(findings_of(pairs, slots, matched.alignments))
    named = any(finding.name != "undecided" for finding in findings)
    return Comparison(
        pairs=pairs,
        alignments=tuple(matched.alignments),
        slots=slots,
        findings=findings,
        notes=tuple(_notes(pairs, slots, matched.alignments, matched.notes)),
        answer="different" if named else "undecided" if findings else "alike",
    )


def _notes(
    pairs: Pairs, slots: tuple[Named, ...], alignments: list[Alignment], notes: list[str]
) -> Iterable[str]:
    yield from notes
    for slot in slots:
        if slot.outliers and slot.name == "alike":
            yield (
                f"slot {slot.slot}: {slot.outliers} of {len(pairs.token_ids)} rows are far off "
                f"(positions {', '.join(map(str, slot.outlying_positions))})"
            )
    for alignment in alignments:
        if not alignment.same_beginning:
            yield (
                f"the equal ids of {alignment.request} begin at position "
                f"{alignment.first_position} of the capture and at id {alignment.first_id} of the "
                "saved sequence, so the text before them is not the same, and states differ for "
                "that reason too"
            )
    if not pairs.info.all_boundaries:
        yield (
            "the capture has no other boundaries than those served, so a neighbouring boundary "
            "cannot be told from noise"
        )
    claimed = pairs.claimed
    if claimed is not None and claimed[: len(pairs.info.boundaries)] != tuple(
        pairs.info.boundaries
    ):
        yield (
            f"the saved states name their boundaries: {list(claimed)}, served are "
            f"{pairs.info.boundaries}"
        )
    if len(pairs.token_ids) < 64:
        yield f"{len(pairs.token_ids)} tokens are few: margins are wide"
