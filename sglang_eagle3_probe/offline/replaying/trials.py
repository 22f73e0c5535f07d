"""Tries variations: of a small draft all on the same rows, of a large one the promising ones.

A large draft's variations first draft one token on few rows. That tells most of them to be surely
worse; what is left is played to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.drafts.together import together
from sglang_eagle3_probe.offline.replaying.choice import cut, foremost
from sglang_eagle3_probe.offline.replaying.outcomes import (
    Outcome,
    difference,
    outcome_of,
    picked,
)
from sglang_eagle3_probe.offline.replaying.replay_play import Begun, Chosen, Played, play
from sglang_eagle3_probe.offline.replaying.replay_rows import Rows
from sglang_eagle3_probe.offline.replaying.variations import BASE, TRAINED, Variation

CHANGE_FEATURES = {"fc", "fc_norm", "norm_before_fc", "slot_order"}
"""Fields of a plan that change what ``features`` gives."""
AFTER_LAYERS = {"vocabulary_map", "head", "last_norm", "norm_output"}
"""Fields that change nothing before the last layer's end in step 0."""
AFTER_FIRST = {"norm_output"}
"""Fields that do not change the first token."""
SCREENED = 2
"""The rows of the first look are so many times fewer."""
FINALISTS = 3
"""Of those that are not surely worse, the best go on."""
EXPLAINING = 2
"""Where the engine drafts other tokens, so many that draft the most of its tokens go on too."""
AGREES = 0.5
"""Of the engine's first tokens; what drafts fewer of them is not what the engine computes."""
STATES_BYTES = 1 << 30
"""Of what is held at once, about."""
AT_ONCE = 96
"""Forwards in step."""


@dataclass(frozen=True)
class Scene:
    """What variations are tried on.

    Attributes:
        taken, chosen: requests, and what of them.
        features, begun: of the draft as configured, one a request.
        steps: S. dtype: the engine's.
    """

    draft: ReferenceDraft
    taken: Sequence[Rows]
    chosen: Sequence[Chosen]
    features: Sequence[torch.Tensor]
    begun: Sequence[Begun]
    steps: int
    dtype: str


def tried(scene: Scene, wanted: Sequence[Variation]) -> list[Outcome]:
    """Each variation on all that is chosen."""
    draft, jobs = scene.draft, []
    places = [i for i, c in enumerate(scene.chosen) if len(c.rows) or len(c.rounds)]
    rows = [cut(scene.taken[i], scene.chosen[i]) for i in places]
    for variation in wanted:
        keeps = not variation.slots and not CHANGE_FEATURES.intersection(variation.changes)
        after = not (variation.slots or variation.shift) and AFTER_LAYERS.issuperset(
            variation.changes
        )
        for i, its in zip(places, rows, strict=True):
            jobs.append(
                partial(
                    play, draft, variation, its, scene.chosen[i], scene.steps,
                    features=scene.features[i][: its.count] if keeps else None,
                    begun=scene.begun[i] if after else None,
                    engine_dtype=scene.dtype,
                )
            )  # fmt: skip
    found: list[Played | Exception] = []
    for start, end in _waves(draft, len(wanted), [its.count for its in rows]):
        found += together(jobs[start:end])
    return [
        _outcome(variation, found[n * len(rows) : (n + 1) * len(rows)])
        for n, variation in enumerate(wanted)
    ]


def _waves(
    draft: ReferenceDraft, variations: int, counts: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """First and last of the jobs that run in step: whole variations, as many as memory allows."""
    plan = draft.plan
    a_row = 4 * (2 * plan.heads * plan.head_dim + 4 * plan.hidden)
    at_once = STATES_BYTES // max(1, a_row * sum(counts))
    size = max(1, min(at_once, AT_ONCE // max(1, len(counts))))
    for start in range(0, variations, size):
        yield start * len(counts), min(start + size, variations) * len(counts)


def _outcome(variation: Variation, played: Sequence[Played | Exception]) -> Outcome:
    good: list[Played] = []
    for each in played:
        if isinstance(each, CheckpointError):
            return Outcome(variation, failed=str(each))
        if isinstance(each, Exception):
            raise each
        good.append(each)
    return outcome_of(variation, good)


def screened(
    scene: Scene, wanted: Sequence[Variation], played: Sequence[Played], trained_theta: float | None
) -> list[Outcome]:
    """Each variation, those on all that is chosen that might make a difference; the others are set
    aside by their first token.

    Args:
        played: the draft as configured on all that is chosen.
        trained_theta: that the trainer's notes name, whose variation is always played to the end.
    """
    rows = -(-sum(len(c.rows) for c in scene.chosen) // SCREENED)
    rounds = -(-sum(len(c.rounds) for c in scene.chosen) // SCREENED)
    few = foremost(scene.taken, scene.chosen, rows, rounds)
    look = replace(scene, chosen=few, steps=1)
    base = outcome_of(
        BASE, [picked(*each, 1) for each in zip(played, scene.chosen, few, strict=True)]
    )
    first = tried(look, [v for v in wanted if not _is_told_later(v, trained_theta)])
    final = {id(v) for v in wanted if _is_told_later(v, trained_theta)}
    final |= _promising(first, base)
    ended = iter(tried(scene, [v for v in wanted if id(v) in final]))
    looked = {id(outcome.variation): outcome for outcome in first}
    return [
        next(ended) if id(v) in final else replace(looked[id(v)], set_aside=True) for v in wanted
    ]


def _is_told_later(variation: Variation, trained_theta: float | None) -> bool:
    """The first token does not tell of it, or the draft's files name it."""
    named = trained_theta is not None and variation.changes.get("theta") == trained_theta
    only_later = bool(variation.changes) and AFTER_FIRST.issuperset(variation.changes)
    return named or only_later or variation.name == TRAINED


def _promising(first: Sequence[Outcome], base: Outcome) -> set[int]:
    """Ids of the variations that may be better, or be what the engine computes."""
    apart = [(o, difference(o, base)) for o in first]
    better = [(o, d) for o, d in apart if d is not None and not d.is_certain_loss]
    better.sort(key=lambda each: -each[1].mean)
    found = {id(o.variation) for o, _ in better[:FINALISTS]}
    if base.different.hits:
        near = [o for o in first if not o.failed and (o.different.share or 0.0) < 1 - AGREES]
        near.sort(key=lambda o: o.different.hits)
        found |= {id(o.variation) for o in near[:EXPLAINING]}
    return found
