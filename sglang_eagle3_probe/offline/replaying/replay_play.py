"""One variation of a draft played over captured rows: is it right, and is it the engine's?

Letters as in ``reference_draft``; N rows judged, R rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_eagle3_probe.offline.drafts.drafting import chain, paths, tree
from sglang_eagle3_probe.offline.drafts.reference_draft import Context, Output, ReferenceDraft
from sglang_eagle3_probe.offline.replaying.replay_rows import Rounds, Rows
from sglang_eagle3_probe.offline.replaying.variations import EMBEDDING_SLOT, Variation

ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20}
"""Relative rounding of one number in the engine's dtype; of float32, in which the replay computes
too, that of its sums, which run in another order."""
TIE = 4.0
"""Two logits nearer to each other than so many roundings of the larger may swap in an engine."""


@dataclass(frozen=True)
class Played:
    """What a variation gave on one request.

    Attributes:
        right: bool [N, S], teacher-forced: step k of the row is the target's token.
        known: bool [N, S], where the target's token is known.
        same, tie: bool [R, S], step k of the round, given the engine's tokens before it, is what
            the engine drafted; or differs, but within rounding. None: nothing to compare.
        free: bool [R, S], the own chain's step k is the target's token. free_known: where known.
        hidden: relative error [R, S] of the recurrent states against the captured ones; None: not
            captured.
    """

    right: torch.Tensor
    known: torch.Tensor
    same: torch.Tensor | None = None
    tie: torch.Tensor | None = None
    free: torch.Tensor | None = None
    free_known: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


@dataclass(frozen=True)
class Chosen:
    """Rows judged and rounds compared, as indices into a request's rows and rounds."""

    rows: torch.Tensor
    rounds: torch.Tensor


def everything(rows: Rows) -> Chosen:
    """All rows whose first target is known, all rounds."""
    judged = (rows.targets(0) >= 0).nonzero().flatten()
    count = len(rows.rounds.rows) if rows.rounds is not None else 0
    return Chosen(judged, torch.arange(count))


def thinned(chosen: Chosen, rows: int, rounds: int) -> Chosen:
    """At most so many of each, evenly spread."""

    def spread(values: torch.Tensor, most: int) -> torch.Tensor:
        if len(values) <= most:
            return values
        return values[torch.linspace(0, len(values) - 1, most).round().long()]

    return Chosen(spread(chosen.rows, rows), spread(chosen.rounds, rounds))


def with_slots(draft: ReferenceDraft, rows: Rows, slots: tuple[int, ...]) -> torch.Tensor:
    """The aux states with other slots in their places."""
    if not slots:
        return rows.aux
    blocks = list(rows.aux.split(draft.plan.target_hidden, dim=-1))
    picked = [
        draft.embed(rows.ids[: rows.count]).to(rows.aux.dtype)
        if slot == EMBEDDING_SLOT
        else blocks[slot]
        for slot in slots
        if slot < len(blocks)
    ]
    return torch.cat(picked, dim=-1)


def play(
    draft: ReferenceDraft,
    variation: Variation,
    rows: Rows,
    chosen: Chosen,
    steps: int,
    *,
    features: torch.Tensor | None = None,
    engine_dtype: str = "float32",
    free: bool = False,
) -> Played:
    """Runs a variation on a request.

    Args:
        draft: as configured; the variation's changes are made here.
        chosen: rows judged and rounds compared.
        steps: S of the teacher-forced part; rounds have the engine's.
        features: of the states as configured, where the variation leaves them as they are.
        free: also let each round run freely.
    """
    varied = draft.varied(**variation.changes) if variation.changes else draft
    if features is None:
        features = varied.features(with_slots(draft, rows, variation.slots))
    next_ids = rows.next_ids(steps, variation.shift)
    positions = torch.arange(rows.count)
    starts = torch.empty(0, dtype=torch.int64)
    if rows.rounds is not None:
        starts = rows.rounds.rows[chosen.rounds]
    needed, places = torch.unique(torch.cat([chosen.rows, starts]), return_inverse=True)
    first, context = varied.begin(next_ids[: rows.count], features, positions, needed)

    def at(place: torch.Tensor) -> Output:
        return Output(first.normed[place], first.hidden[place], [])

    judged = chosen.rows
    later = next_ids if variation.every_step else rows.next_ids(steps)
    forced = torch.stack([later[judged + k] for k in range(1, steps)], 1) if steps > 1 else None
    found = chain(
        varied, context, at(places[: len(judged)]), judged, positions[judged], steps, forced
    )
    targets = torch.stack([rows.targets(k)[judged] for k in range(steps)], 1)
    picked = torch.stack([step.target_ids for step in found], 1)
    played = Played(right=picked == targets, known=targets >= 0)
    rounds = rows.rounds
    if rounds is None or not len(starts):
        return played
    if variation.every_step and variation.shift > 0:
        return played  # no engine reads a token before it has drafted it
    roots = rows.ids[starts + 1] if variation.every_step else None
    begun = context, at(places[len(judged) :])
    if not rounds.is_chain:
        return _against_trees(varied, played, rows, rounds, chosen, begun, engine_dtype, roots)
    return _against_chains(varied, played, rows, rounds, chosen, begun, engine_dtype, free, roots)


def _against_chains(
    draft: ReferenceDraft,
    played: Played,
    rows: Rows,
    rounds: Rounds,
    chosen: Chosen,
    begun: tuple[Context, Output],
    engine_dtype: str,
    free: bool,
    roots: torch.Tensor | None,
) -> Played:
    """``roots``: int64 [R], where each step reads the token that the step before it read the next
    one of; None: each reads the token before its own."""
    context, first = begun
    starts, nodes = rounds.rows[chosen.rounds], rounds.node_ids[chosen.rounds]
    count = nodes.shape[1]
    read = nodes if roots is None else torch.cat([roots[:, None], nodes], dim=1)
    found = chain(draft, context, first, starts, starts, count, read[:, : count - 1])
    same = torch.stack([step.target_ids == nodes[:, k] for k, step in enumerate(found)], 1)
    rounding = ROUNDING.get(engine_dtype, ROUNDING["bfloat16"]) * TIE
    near = torch.stack([step.best.gaps <= rounding * step.best.sizes for step in found], 1)
    hidden = None
    if rounds.hidden is not None:
        theirs = rounds.hidden[chosen.rounds][:, :, 0].to(torch.float32)
        errors = [
            (step.hidden - theirs[:, k]).norm(dim=-1) / theirs[:, k].norm(dim=-1).clamp_min(1e-30)
            for k, step in enumerate(found[: theirs.shape[1]])
        ]
        hidden = torch.stack(errors, 1)
    own = own_known = None
    if free:
        picked = torch.stack([step.target_ids for step in found], 1)
        # Read the engine's tokens or its own: the same thing as long as they are the same.
        left = (~same[:, :-1].all(dim=1)).nonzero().flatten()
        if len(left):
            begun_again = Output(first.normed[left], first.hidden[left], [])
            ran = chain(draft, context, begun_again, starts[left], starts[left], count)
            picked[left] = torch.stack([step.target_ids for step in ran], 1)
        targets = torch.stack([rows.targets(k)[starts] for k in range(count)], 1)
        own = picked == targets
        own_known = targets >= 0
    return Played(played.right, played.known, same, ~same & near, own, own_known, hidden)


def _against_trees(
    draft: ReferenceDraft,
    played: Played,
    rows: Rows,
    rounds: Rounds,
    chosen: Chosen,
    begun: tuple[Context, Output],
    engine_dtype: str,
    roots: torch.Tensor | None,
) -> Played:
    """Step k agrees when the trees have the same paths of k + 1 tokens. ``roots``: as of chains."""
    context, first = begun
    starts = rounds.rows[chosen.rounds]
    steps, topk, nodes = rows.steps, rows.topk, rounds.node_ids.shape[1] + 1
    grown = tree(draft, context, first, starts, starts, steps, topk, nodes, roots)
    same = torch.zeros((len(starts), steps), dtype=torch.bool)
    for index, round_ in enumerate(chosen.rounds.tolist()):
        mine = paths(grown.node_ids[index], grown.parents[index])
        theirs = paths(rounds.node_ids[round_], rounds.parents[round_])
        for step in range(steps):
            same[index, step] = mine[step : step + 1] == theirs[step : step + 1]
    rounding = ROUNDING.get(engine_dtype, ROUNDING["bfloat16"]) * TIE
    near = (grown.margins <= rounding * grown.sizes)[:, None]
    return Played(played.right, played.known, same, ~same & near)
