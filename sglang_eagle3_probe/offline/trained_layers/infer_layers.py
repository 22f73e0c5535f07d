"""The boundaries, and their order, that a draft was trained on: found by its own accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch

from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.host.conventions import default_boundaries
from sglang_eagle3_probe.offline.captured import capture_files, read_requests
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.trained_layers.layer_labels import label
from sglang_eagle3_probe.offline.trained_layers.layer_rows import ROWS, LayerRows, collect
from sglang_eagle3_probe.offline.trained_layers.layer_scores import LayerScorer, Scores
from sglang_eagle3_probe.offline.trained_layers.layer_search import Columns, LayerSearch
from sglang_eagle3_probe.offline.trained_layers.layer_verdict import (
    Contender,
    Margin,
    Ranking,
    rank,
)

EXACT = 10
"""Combinations that get scored on all rows: the best of the search, and more for each slot."""
FOR_A_SLOT = 2
CLIMBS = 4

NOTHING: Mapping[str, Any] = MappingProxyType({})

Answer = Literal["as served", "differs", "undecided"]


@dataclass(frozen=True)
class Slot:
    """One place of the concatenation.

    Attributes:
        boundary: of the best combination.
        runner_up: the boundary that comes closest to it here. margin: by how much it is worse.
        possible: boundaries that the data do not rule out at this slot, ascending.
    """

    number: int
    boundary: int
    runner_up: int | None
    margin: Margin | None
    possible: tuple[int, ...]


@dataclass(frozen=True)
class Inference:
    """What was found.

    Attributes:
        ranking: of combinations given as columns; ``boundaries_of`` turns them.
        served: boundaries that the server handed the draft in the captured run.
        changes: what of the draft was run as its files say training did, not as SGLang does.
        quick, thorough: combinations that were scored in the search. whole: how many there are.
    """

    rows: LayerRows
    ranking: Ranking
    slots: tuple[Slot, ...]
    labels: str
    statistic: str
    rows_scored: int
    search_rows: int
    quick: int
    thorough: int
    whole: int
    changes: tuple[str, ...]
    target: str | None

    def boundaries_of(self, contender: Contender) -> tuple[int, ...]:
        return tuple(self.rows.boundaries[c] for c in contender.columns)

    @property
    def best(self) -> tuple[int, ...]:
        """Boundaries of the best combination, in the order of ``fc``."""
        return self.boundaries_of(self.ranking.best)

    @property
    def served(self) -> tuple[int, ...]:
        return self.rows.served

    @property
    def served_contender(self) -> Contender | None:
        """The served combination among the contenders; None: it cannot be scored."""
        for contender in self.ranking.contenders:
            if self.boundaries_of(contender) == self.served:
                return contender
        return None

    @property
    def served_ruled_out(self) -> bool:
        """The draft knows the target, and is clearly better with other boundaries."""
        found = self.served_contender
        if not self.ranking.informed:
            return False
        return found is None or (found.behind is not None and found.behind.clear)

    @property
    def answer(self) -> Answer:
        if self.served_ruled_out:
            return "differs"
        return "as served" if self.ranking.decided else "undecided"

    @property
    def exit_code(self) -> int:
        """0 trained as served, 1 trained otherwise, 2 the data do not tell."""
        return {"as served": 0, "differs": 1, "undecided": 2}[self.answer]


def infer_layers(
    capture: Path, draft_folder: str, target_folder: str | None, *, limit: int = ROWS
) -> Inference:
    """Finds the boundaries of training.

    Args:
        capture: a capture with all boundaries.
        target_folder: the target's checkpoint; None: the one that the capture names, if it is here.
        limit: rows that are read at most.

    Raises:
        CheckpointError: files cannot be read, or do not belong together.
    """
    first_pieces = [path for path in capture_files(capture) if path.stem.endswith("-0000")]
    rows = collect(read_requests(capture), limit=limit, expected=len(first_pieces))
    named = rows.info.target
    if target_folder is None and named and Path(named).is_dir():
        target_folder = named
    draft = ReferenceDraft.load(draft_folder, target=target_folder)
    changes = draft.trained_changes
    return infer_from(rows, draft.as_trained(), changes, target_folder)


def infer_from(
    rows: LayerRows,
    draft: ReferenceDraft,
    changes: Mapping[str, Any] = NOTHING,
    target: str | None = None,
) -> Inference:
    """The same, from what was read."""
    with torch.inference_mode():
        return _infer(rows, draft, changes, target)


def _infer(
    rows: LayerRows, draft: ReferenceDraft, changes: Mapping[str, Any], target: str | None
) -> Inference:
    labels = label(rows, draft)
    scorer = LayerScorer(draft, rows, labels)
    search = LayerSearch(
        scorer.slots,
        scorer.columns,
        lambda columns: scorer.search_score(columns, quick=True),
        lambda columns: scorer.search_score(columns, quick=False),
    )
    starts = _starts(rows, scorer.slots)
    found = search.run(starts)
    scores = _exact(search, scorer, found, starts)
    best = max(scores, key=lambda columns: scores[columns].mean)
    ranking = rank(scores, scorer.exact(best, shuffled=True), scorer.unigram(), scorer.request)
    whole = 1
    for slot in range(scorer.slots):
        whole *= scorer.columns - slot
    return Inference(
        rows=rows,
        ranking=ranking,
        slots=tuple(_slot(rows, ranking, number) for number in range(scorer.slots)),
        labels=labels.source,
        statistic=labels.statistic,
        rows_scored=len(scorer.request),
        search_rows=scorer.search_rows,
        quick=search.quick_count,
        thorough=len(search.scored),
        whole=whole,
        changes=tuple(f"{name}={value}" for name, value in changes.items()),
        target=shown(target) if target else None,
    )


def _starts(rows: LayerRows, slots: int) -> list[Columns]:
    """Columns of what was served, of it one earlier and later, of the default, of even steps."""
    layers = rows.info.num_layers or max(rows.boundaries)
    served, n = rows.served, len(rows.boundaries)
    lists: list[Sequence[int]] = [
        served,
        [h - 1 for h in served],
        [h + 1 for h in served],
        default_boundaries(rows.info.target_class, layers),
        [rows.boundaries[(i + 1) * n // (slots + 1)] for i in range(slots)],
    ]
    place = {h: column for column, h in enumerate(rows.boundaries)}
    return [tuple(place[h] for h in found) for found in lists if all(h in place for h in found)]


def _exact(
    search: LayerSearch, scorer: LayerScorer, found: Columns, starts: Sequence[Columns]
) -> dict[Columns, Scores]:
    """Scores on all rows of what may be best; climbs on if a neighbour turns out better."""
    scores: dict[Columns, Scores] = {}
    best = found
    for _ in range(CLIMBS):
        ranked = search.ranked([best, *search.near(best)])
        wanted = [best, *ranked[:EXACT]]
        for slot in range(search.slots):
            others = [c for c in ranked if c[slot] != best[slot]]
            seen: dict[int, Columns] = {}
            for columns in others:
                seen.setdefault(columns[slot], columns)
            wanted += list(seen.values())[:FOR_A_SLOT]
        # The nearest are scored whatever the search thought of them: "possible" lists what was.
        wanted += [c for c in search.near(best) if _steps(c, best) == 1]
        wanted += [start for start in starts[:1] if len(start) == search.slots]
        for columns in dict.fromkeys(wanted):
            if columns not in scores:
                scores[columns] = scorer.exact(columns)
        leader = max(scores, key=lambda columns: scores[columns].mean)
        if leader == best:
            break
        best = leader
    return scores


def _steps(a: Columns, b: Columns) -> int:
    return sum(abs(x - y) for x, y in zip(a, b, strict=True))


def _slot(rows: LayerRows, ranking: Ranking, number: int) -> Slot:
    best = ranking.best.columns[number]
    rival = next((c for c in ranking.contenders if c.columns[number] != best), None)
    return Slot(
        number,
        rows.boundaries[best],
        None if rival is None else rows.boundaries[rival.columns[number]],
        None if rival is None else rival.behind,
        tuple(sorted({rows.boundaries[c.columns[number]] for c in ranking.possible})),
    )
