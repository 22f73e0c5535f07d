"""Replays captured requests through a draft, in every variation, and says what came out.

``verdict`` is about three questions in turn: did the engine draft what these weights compute; if
so, would the draft be right more often when run otherwise; if
not, is it as good as its trainer says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from sglang_eagle3_probe.analysis.intervals import Share
from sglang_eagle3_probe.analysis.prediction import (
    MOST_BYTES,
    Prediction,
    PredictionError,
    parse,
)
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import opened, read_exactly
from sglang_eagle3_probe.checkpoint.reader import TRAINER_NOTES
from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.captured_ranks import RanksKnown
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.drafts.together import together
from sglang_eagle3_probe.offline.replaying.choice import (
    LARGE,
    STEPS,
    affordable,
    foremost,
    spread,
    take,
)
from sglang_eagle3_probe.offline.replaying.outcomes import Agreement, Outcome, outcome_of, picked
from sglang_eagle3_probe.offline.replaying.replay_play import Played, begin, everything, play
from sglang_eagle3_probe.offline.replaying.replay_rows import Rows
from sglang_eagle3_probe.offline.replaying.trials import Scene, screened, tried
from sglang_eagle3_probe.offline.replaying.variations import BASE, variations

Found = TypeVar("Found")
TOKENS = 16
"""So many times the rows of a variation are taken from captures."""
WHOLE = 4
"""So many times the rows of a variation are judged for the draft as configured."""
LEAST = 16
"""Rows or rounds; a share of fewer is noise."""


@dataclass(frozen=True)
class RankAgreement(Agreement):
    """Ranks of the target's token where a draft was refused: of the engine, and of the replay."""

    known: RanksKnown
    """In the captures."""


@dataclass(frozen=True)
class Replay:
    """Everything that was found.

    Attributes:
        rows, rounds: captured and taken. whole: the draft as configured, on all of them that have
            something to judge, or of a large draft on some.
        outcomes: all variations on the same fewer rows, the draft as configured first. Of a large
            draft, those that were set aside are judged on fewer still.
        free: share of right tokens a step, where the draft reads its own choices, from the rows
            that the engine started its rounds at.
        hidden: median relative error of the recurrent states a step; empty: not captured.
        ranks: of the target's token where a draft was refused, in chains; None: no rounds.
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
    ranks: RankAgreement | None
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
    taken, infos, skipped = take(requests, TOKENS * most if tokens is None else tokens)
    info = infos[0]
    steps = max(r.steps for r in taken) or STEPS
    dtype = info.dtype
    progress(f"{len(taken)} requests, {sum(r.count for r in taken)} tokens")
    chosen = spread([everything(r) for r in taken], WHOLE * most, WHOLE * most // 2)
    judged, compared = sum(len(c.rows) for c in chosen), sum(len(c.rounds) for c in chosen)
    if max(judged, compared) < LEAST:
        raise CheckpointError(
            f"the captures hold {judged} tokens of answers and {compared} rounds; fewer than "
            f"{LEAST} say nothing of a draft. Fix: capture longer answers, or more requests."
        )
    features = _all(together([partial(draft.features, r.aux) for r in taken]))
    begun = _all(
        together(
            [partial(begin, draft, *each) for each in zip(taken, chosen, features, strict=True)]
        )
    )
    played = _all(
        together(
            [
                partial(play, draft, BASE, r, c, steps, begun=b, engine_dtype=dtype, whole=True)
                for r, c, b in zip(taken, chosen, begun, strict=True)
            ]
        )
    )
    whole = outcome_of(BASE, played)
    rows_wanted = most if rows is None else rows
    rounds_wanted = most // 2 if rounds is None else rounds
    is_large = most < LARGE
    few = (
        foremost(taken, chosen, rows_wanted, rounds_wanted)
        if is_large
        else spread(chosen, rows_wanted, rounds_wanted)
    )
    few_played = [picked(*each) for each in zip(played, chosen, few, strict=True)]
    scene = Scene(draft, taken, few, features, begun, steps, dtype)
    wanted = [v for v in variations(draft, info) if v.name != BASE.name] if vary else []
    progress(f"{len(wanted)} variations")
    trees = any(r.rounds is not None and not r.rounds.is_chain for r in taken)
    theta = draft.weights.draft.facts.trained_rope_theta
    # A tree is compared as a whole: its first tokens do not tell what the engine computes.
    if is_large and rows is None and not (trees and whole.different.hits):
        outcomes = screened(scene, wanted, few_played, theta)
    else:
        outcomes = tried(scene, wanted)
    boundaries = tuple(info.boundaries)
    return Replay(
        requests=len(taken),
        rows=sum(r.count for r in taken),
        rounds=sum(len(r.rounds.rows) for r in taken if r.rounds is not None),
        steps=steps,
        engine_dtype=dtype,
        greedy=all(r.greedy for r in taken),
        trees=trees,
        boundaries=boundaries,
        trained_boundaries=_trained_boundaries(draft),
        theta=draft.plan.rope.theta,
        trained_theta=theta,
        state_width=taken[0].aux.shape[1],
        draft_width=draft.plan.hidden,
        slots=draft.plan.slots,
        whole=whole,
        outcomes=(outcome_of(BASE, few_played), *outcomes),
        free=_free(played),
        hidden=_hidden(played),
        ranks=_ranks(taken, played),
        handed=_handed(taken),
        skipped=tuple(skipped),
        trainer=trainer_notes(draft),
    )


def _all(found: Sequence[Found | Exception]) -> list[Found]:
    good: list[Found] = []
    for each in found:
        if isinstance(each, Exception):
            raise each
        good.append(each)
    return good


def _free(played: Sequence[Played]) -> tuple[Share, ...]:
    known = [p.whole.free_known for p in played if p.whole is not None]
    if not known:
        return ()
    all_known = torch.cat(known)
    all_right = torch.cat([p.whole.free for p in played if p.whole is not None]) & all_known
    return tuple(
        Share(int(all_right[:, k].sum()), int(all_known[:, k].sum()))
        for k in range(all_right.shape[1])
    )


def _hidden(played: Sequence[Played]) -> tuple[float, ...]:
    errors = [w.hidden for p in played if (w := p.whole) is not None and w.hidden is not None]
    if not errors:
        return ()
    return tuple(torch.cat(errors).median(dim=0).values.tolist())


def _ranks(taken: Sequence[Rows], played: Sequence[Played]) -> RankAgreement | None:
    known = [r.ranks for r in taken if r.ranks is not None]
    found = [p.whole.ranks for p in played if p.whole is not None]
    if not known:
        return None
    whole = RanksKnown(
        sum(k.refused for k in known),
        sum(k.told for k in known),
        sum(k.known for k in known),
        next((k.why for k in known if k.why), ""),
    )
    if not found:
        return RankAgreement(0, 0, 0, known=whole)
    theirs, mine, low, high = torch.cat(found).T
    same = theirs == mine
    ties = ~same & (low <= theirs) & (theirs <= high)
    return RankAgreement(int(same.sum()), int(ties.sum()), len(theirs), known=whole)


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
