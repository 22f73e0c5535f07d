"""Replays captured requests through a draft, in every variation, and says what came out.

``verdict`` is about three questions in turn: did the engine draft what these weights compute; if
so, would the draft be right more often when run otherwise; if
not, is it as good as its trainer says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from sglang_eagle3_probe.analysis.intervals import Share
from sglang_eagle3_probe.analysis.prediction import (
    MOST_BYTES,
    Prediction,
    PredictionError,
    parse,
)
from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import opened, read_exactly
from sglang_eagle3_probe.checkpoint.reader import TRAINER_NOTES
from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.replaying.replay_play import (
    Chosen,
    Played,
    everything,
    play,
    thinned,
)
from sglang_eagle3_probe.offline.replaying.replay_rows import Rows, rows_of
from sglang_eagle3_probe.offline.replaying.variations import BASE, Variation, variations

CHANGE_FEATURES = {"fc", "fc_norm", "norm_before_fc", "slot_order"}
"""Fields of a plan that change what ``features`` gives."""
OPERATIONS = 1e12
"""Multiplications and additions of one variation: some seconds on two cores."""
TOKENS = 16
"""So many times the rows of a variation are taken from captures."""
WHOLE = 4
"""So many times the rows of a variation are judged for the draft as configured."""
LEAST = 16
"""Rows or rounds; a share of fewer is noise."""
STEPS = 3
"""Steps judged where a capture does not say how many were drafted."""


@dataclass(frozen=True)
class Agreement:
    """Draft tokens of the engine and of a variation, at one step: given the same tokens before."""

    same: int
    ties: int
    compared: int

    @property
    def different(self) -> int:
        return self.compared - self.same - self.ties


@dataclass(frozen=True)
class Outcome:
    """One variation over all requests.

    Attributes:
        accuracy: teacher-forced, a step; of rows whose target is known.
        leading: int64 [N], right steps from the first on, a row with all steps known.
        agreement: a step; empty without captured rounds.
        failed: why it could not be run; empty if it was.
    """

    variation: Variation
    accuracy: tuple[Share, ...] = ()
    leading: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    agreement: tuple[Agreement, ...] = ()
    failed: str = ""

    @property
    def length(self) -> float | None:
        """Accept length of chains started at these rows: 1 + mean of right steps."""
        return 1 + float(self.leading.double().mean()) if len(self.leading) else None

    @property
    def different(self) -> Share:
        """Of the engine's tokens, those that differ by more than rounding; all steps."""
        return Share(
            sum(a.different for a in self.agreement), sum(a.compared for a in self.agreement)
        )


@dataclass(frozen=True)
class Replay:
    """Everything that was found.

    Attributes:
        rows, rounds: captured and taken. whole: the draft as configured, on all of them that have
            something to judge, or of a large draft on some.
        outcomes: all variations on the same thinned rows, the draft as configured first.
        free: share of right tokens a step, where the draft reads its own choices, from the rows
            that the engine started its rounds at.
        hidden: median relative error of the recurrent states a step; empty: not captured.
        handed: ids captured beside the states that are the next token's, with the shift that fits
            most of them.
        skipped: requests not replayed and why.
        trainer: what the draft's trainer reports; None: nothing.
    """

    requests: int
    rows: int
    rounds: int
    steps: int
    engine_dtype: str
    greedy: bool
    trees: bool
    boundaries: tuple[int, ...]
    trained_boundaries: tuple[int, ...] | None
    theta: float
    trained_theta: float | None
    state_width: int
    draft_width: int
    slots: int
    whole: Outcome
    outcomes: tuple[Outcome, ...]
    free: tuple[Share, ...]
    hidden: tuple[float, ...]
    handed: tuple[int, Share] | None
    skipped: tuple[str, ...]
    trainer: Prediction | None

    @property
    def base(self) -> Outcome:
        """The draft as configured, on the rows that variations were tried on."""
        return self.outcomes[0]


def replay(
    requests: Iterable[CapturedRequest],
    draft: ReferenceDraft,
    *,
    rows: int | None = None,
    rounds: int | None = None,
    tokens: int | None = None,
    vary: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Replay:
    """Replays.

    Args:
        rows, rounds: as many at most to try variations on, of all requests together; None: what
            takes some seconds a variation.
        tokens: no further request is taken once so many tokens are; None: as ``rows``.
        vary: try variations.

    Raises:
        CheckpointError: nothing could be replayed.
    """
    most = affordable(draft)
    taken, infos, skipped = _take(requests, TOKENS * most if tokens is None else tokens)
    info = infos[0]
    steps = max(r.steps for r in taken) or STEPS
    dtype = info.dtype
    progress(f"{len(taken)} requests, {sum(r.count for r in taken)} tokens")
    chosen = _thin([everything(r) for r in taken], WHOLE * most, WHOLE * most)
    judged, compared = sum(len(c.rows) for c in chosen), sum(len(c.rounds) for c in chosen)
    if max(judged, compared) < LEAST:
        raise CheckpointError(
            f"the captures hold {judged} tokens of answers and {compared} rounds; fewer than "
            f"{LEAST} say nothing of a draft. Fix: capture longer answers, or more requests."
        )
    features = [draft.features(r.aux) for r in taken]
    played = [
        play(draft, BASE, r, c, steps, features=f, engine_dtype=dtype, free=True)
        for r, c, f in zip(taken, chosen, features, strict=True)
    ]
    whole = _outcome(BASE, played)
    few = _thin(chosen, most if rows is None else rows, most // 2 if rounds is None else rounds)
    base = _outcome(BASE, [_picked(*each) for each in zip(played, chosen, few, strict=True)])
    outcomes = [base]
    boundaries = tuple(info.boundaries)
    for variation in variations(draft, info) if vary else ():
        if variation.name == BASE.name:
            continue
        progress(variation.name)
        outcomes.append(_tried(draft, variation, taken, few, features, steps, dtype))
    return Replay(
        requests=len(taken),
        rows=sum(r.count for r in taken),
        rounds=sum(len(r.rounds.rows) for r in taken if r.rounds is not None),
        steps=steps,
        engine_dtype=dtype,
        greedy=all(r.greedy for r in taken),
        trees=any(r.rounds is not None and not r.rounds.is_chain for r in taken),
        boundaries=boundaries,
        trained_boundaries=_trained_boundaries(draft),
        theta=draft.plan.rope.theta,
        trained_theta=draft.weights.draft.facts.trained_rope_theta,
        state_width=taken[0].aux.shape[1],
        draft_width=draft.plan.hidden,
        slots=draft.plan.slots,
        whole=whole,
        outcomes=tuple(outcomes),
        free=_free(played),
        hidden=_hidden(played),
        handed=_handed(taken),
        skipped=tuple(skipped),
        trainer=trainer_notes(draft),
    )


def _shape(rows: Rows) -> tuple[int, int, int]:
    return rows.steps, rows.topk, rows.nodes


def affordable(draft: ReferenceDraft) -> int:
    """Rows to try a variation on: within ``OPERATIONS``, 128 at least and 4096 at most."""
    numbers = sum(
        shape[0] * shape[1]
        for name, shape in draft.weights.shapes.items()
        if len(shape) == 2 and name not in ("fc.weight", "embed_tokens.weight")
    )
    return int(min(4096, max(128, OPERATIONS / (2 * STEPS * max(1, numbers)))))


def _take(
    requests: Iterable[CapturedRequest], tokens: int
) -> tuple[list[Rows], list[PieceInfo], list[str]]:
    taken: list[Rows] = []
    infos: list[PieceInfo] = []
    skipped: list[str] = []
    for request in requests:
        found = rows_of(request)
        if isinstance(found, str):
            skipped.append(found)
            continue
        drafting = [r for r in taken if r.rounds is not None]
        if drafting and found.rounds is not None and _shape(found) != _shape(drafting[0]):
            skipped.append(f"{found.request}: drafted with other steps, topk or draft tokens")
            continue
        taken.append(found)
        infos.append(request.info)
        if sum(r.count for r in taken) >= tokens:
            break
    if not taken:
        why = "; ".join(skipped[:3]) or "there are no requests"
        raise CheckpointError(
            f"no captured request can be replayed ({why}). Fix: serve with --disable-radix-cache "
            "or flush the cache, and capture whole requests from their first token on."
        )
    return taken, infos, skipped


def _thin(chosen: Sequence[Chosen], rows: int, rounds: int) -> list[Chosen]:
    all_rows = sum(len(c.rows) for c in chosen) or 1
    all_rounds = sum(len(c.rounds) for c in chosen) or 1
    return [
        thinned(
            c,
            -(-rows * len(c.rows) // all_rows),
            -(-rounds * len(c.rounds) // all_rounds),
        )
        for c in chosen
    ]


def _picked(played: Played, whole: Chosen, few: Chosen) -> Played:
    """The part of a result that belongs to fewer rows and rounds."""
    at = torch.searchsorted(whole.rows, few.rows)
    rounds = torch.searchsorted(whole.rounds, few.rounds)
    same = played.same[rounds] if played.same is not None else None
    tie = played.tie[rounds] if played.tie is not None else None
    return Played(played.right[at], played.known[at], same, tie)


def _tried(
    draft: ReferenceDraft,
    variation: Variation,
    taken: Sequence[Rows],
    few: Sequence[Chosen],
    features: Sequence[torch.Tensor],
    steps: int,
    dtype: str,
) -> Outcome:
    kept = not variation.slots and not CHANGE_FEATURES.intersection(variation.changes)
    try:
        played = [
            play(draft, variation, r, c, steps, features=f if kept else None, engine_dtype=dtype)
            for r, c, f in zip(taken, few, features, strict=True)
        ]
    except CheckpointError as error:
        return Outcome(variation, failed=str(error))
    return _outcome(variation, played)


def _outcome(variation: Variation, played: Sequence[Played]) -> Outcome:
    right = torch.cat([p.right & p.known for p in played])
    known = torch.cat([p.known for p in played])
    accuracy = tuple(
        Share(int(right[:, k].sum()), int(known[:, k].sum())) for k in range(right.shape[1])
    )
    leading = right[known.all(dim=1)].cumprod(1).sum(1)
    same = [p.same for p in played if p.same is not None]
    ties = [p.tie for p in played if p.tie is not None]
    agreement: tuple[Agreement, ...] = ()
    if same:
        all_same, all_ties = torch.cat(same), torch.cat(ties)
        agreement = tuple(
            Agreement(int(all_same[:, k].sum()), int(all_ties[:, k].sum()), len(all_same))
            for k in range(all_same.shape[1])
        )
    return Outcome(variation, accuracy, leading, agreement)


def _free(played: Sequence[Played]) -> tuple[Share, ...]:
    right = [p.free & p.free_known for p in played if p.free is not None]
    known = [p.free_known for p in played if p.free_known is not None]
    if not right:
        return ()
    all_right, all_known = torch.cat(right), torch.cat(known)
    return tuple(
        Share(int(all_right[:, k].sum()), int(all_known[:, k].sum()))
        for k in range(all_right.shape[1])
    )


def _hidden(played: Sequence[Played]) -> tuple[float, ...]:
    errors = [p.hidden for p in played if p.hidden is not None]
    if not errors:
        return ()
    return tuple(torch.cat(errors).median(dim=0).values.tolist())


def _handed(taken: Sequence[Rows]) -> tuple[int, Share] | None:
    best: tuple[int, Share] | None = None
    for shift in (0, -1, 1):
        hits = seen = 0
        for rows in taken:
            known = rows.handed_ids >= 0
            hits += int((rows.handed_ids == rows.next_ids(1, shift))[known].sum())
            seen += int(known.sum())
        if seen and (best is None or hits > best[1].hits):
            best = (shift, Share(hits, seen))
    return best


def trainer_notes(draft: ReferenceDraft) -> Prediction | None:
    """``trainer_accuracy.json`` beside the weights, if it is there and holds accuracies."""
    path: Path = draft.weights.draft.root / TRAINER_NOTES
    if not path.is_file():
        return None
    try:
        with opened(path) as (file, size):
            return parse(read_exactly(file, 0, min(size, MOST_BYTES + 1)), path.name)
    except (CheckpointError, PredictionError):
        return None


def _trained_boundaries(draft: ReferenceDraft) -> tuple[int, ...] | None:
    ids = draft.weights.draft.facts.trained_output_ids
    return tuple(o + 1 for o in ids) if ids else None
