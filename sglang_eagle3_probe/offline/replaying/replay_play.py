"""One variation of a draft played over captured rows: is it right, and is it the engine's?

Letters as in ``reference_draft``; N rows judged, R rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_eagle3_probe.offline.drafts.drafting import ChainStep, chain, ranks
from sglang_eagle3_probe.offline.drafts.reference_draft import Context, Output, ReferenceDraft
from sglang_eagle3_probe.offline.drafts.tree_drafting import Rounding, paths, tree
from sglang_eagle3_probe.offline.replaying.replay_rows import Rounds, Rows
from sglang_eagle3_probe.offline.replaying.variations import EMBEDDING_SLOT, Variation

ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20}
"""Relative rounding of one number in the engine's dtype; of float32, in which the replay computes
too, that of its sums, which run in another order."""
TIE = 4.0
"""Two logits nearer to each other than so many roundings of the larger may swap in an engine."""


@dataclass(frozen=True)
class Begun:
    """Step 0 of the draft as configured on one request: outputs of ``rows``, which ascend, and the
    keys of all rows before."""

    rows: torch.Tensor
    first: Output
    context: Context


@dataclass(frozen=True)
class Played:
    """What a variation gave on one request.

    Attributes:
        right: bool [N, S], teacher-forced: step k of the row is the target's token.
        known: bool [N, S], where the target's token is known.
        same, tie: bool [R, S], step k of the round, given the engine's tokens before it, is what
            the engine drafted; or differs, but within rounding. None: nothing to compare.
        whole: of the draft as configured; None for variations.
    """

    right: torch.Tensor
    known: torch.Tensor
    same: torch.Tensor | None = None
    tie: torch.Tensor | None = None
    whole: Whole | None = None


@dataclass(frozen=True)
class Whole:
    """What is told of the draft as configured only, in chains.

    Attributes:
        free: bool [R, S], the own chain's step k is the target's token. free_known: where known.
        hidden: relative error [R, S] of the recurrent states against the captured ones; None: not
            captured.
        ranks: int64 [n, 4] of the rounds whose rank is known: the engine's, the replay's, and the
            lowest and highest that rounding makes of the latter.
    """

    free: torch.Tensor
    free_known: torch.Tensor
    hidden: torch.Tensor | None
    ranks: torch.Tensor


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


def begin(
    draft: ReferenceDraft,
    rows: Rows,
    chosen: Chosen,
    features: torch.Tensor,
    shift: int = 0,
) -> Begun:
    """Step 0 of every row that is judged or starts a round that is compared."""
    needed = torch.unique(torch.cat([chosen.rows, _starts(rows, chosen)]))
    ids = rows.next_ids(1, shift)
    first, context = draft.begin(ids, features, torch.arange(rows.count), needed)
    return Begun(needed, first, context)


def _rounding(engine_dtype: str, own: torch.dtype) -> float:
    """Of two computations of one number, each with roundings of its own."""
    found = ROUNDING.get(engine_dtype, ROUNDING["bfloat16"])
    return found if own == torch.float32 else found + ROUNDING[str(own).removeprefix("torch.")]


def _starts(rows: Rows, chosen: Chosen) -> torch.Tensor:
    if rows.rounds is None:
        return torch.empty(0, dtype=torch.int64)
    return rows.rounds.rows[chosen.rounds]


def play(
    draft: ReferenceDraft,
    variation: Variation,
    rows: Rows,
    chosen: Chosen,
    steps: int,
    *,
    features: torch.Tensor | None = None,
    begun: Begun | None = None,
    engine_dtype: str = "float32",
    whole: bool = False,
) -> Played:
    """Runs a variation on a request.

    Args:
        draft: as configured; the variation's changes are made here.
        chosen: rows judged and rounds compared.
        steps: S.
        features: of the states as configured, where the variation leaves them as they are.
        begun: by the draft as configured, of these rows at least, where the variation changes
            nothing up to the end of the last layer.
        whole: also find what ``Whole`` has.
    """
    varied = draft.varied(**variation.changes) if variation.changes else draft
    if begun is None:
        if features is None:
            features = varied.features(with_slots(draft, rows, variation.slots))
        begun = begin(varied, rows, chosen, features, variation.shift)
    elif variation.changes:
        assert begun.first.stream is not None
        begun = Begun(begun.rows, varied.end(begun.first.stream, []), begun.context)
    judged, rounds = chosen.rows, rows.rounds
    next_ids = rows.next_ids(steps, variation.shift)
    later = next_ids if variation.every_step else rows.next_ids(steps)
    true = [later[judged + k] for k in range(1, steps)]
    in_chains = rounds is not None and rounds.is_chain
    starts = _starts(rows, chosen)
    nodes = rounds.node_ids[chosen.rounds] if in_chains and rounds is not None else None
    roots = rows.ids[starts + 1] if variation.every_step else None
    read = nodes
    if nodes is not None and roots is not None:
        read = torch.cat([roots[:, None], nodes], dim=1)
    found, of_rows, of_rounds = _chains(varied, begun, judged, true, starts, read, steps)
    targets = torch.stack([rows.targets(k)[judged] for k in range(steps)], 1)
    ids = torch.stack([step.target_ids for step in found], 1)
    played = Played(right=ids[of_rows] == targets, known=targets >= 0)
    if rounds is None or not len(chosen.rounds):
        return played
    if variation.every_step and variation.shift > 0:
        return played  # no engine reads a token before it has drafted it
    rounding = _rounding(engine_dtype, draft.dtype) * TIE
    if nodes is None:
        return _against_trees(varied, played, rows, rounds, chosen, begun, rounding, roots)
    theirs = nodes[:, :steps]
    same = ids[of_rounds][:, : theirs.shape[1]] == theirs
    near = torch.stack([step.best.gaps <= rounding * step.best.sizes for step in found], 1)
    near = near[of_rounds][:, : theirs.shape[1]]
    return Played(
        played.right,
        played.known,
        same,
        ~same & near,
        _whole(varied, rows, rounds, chosen, begun, found, of_rounds, same, rounding)
        if whole
        else None,
    )


def _chains(
    draft: ReferenceDraft,
    begun: Begun,
    judged: torch.Tensor,
    true: list[torch.Tensor],
    starts: torch.Tensor,
    nodes: torch.Tensor | None,
    steps: int,
) -> tuple[list[ChainStep], torch.Tensor, torch.Tensor]:
    """Chains behind the rows judged, which read the true tokens, and behind the rounds' rows, which
    read the engine's, in one go; those that are the same are run once.

    Returns:
        The steps, and which of their rows belong to the rows judged and to the rounds.
    """
    behind = torch.stack([judged, *true], 1)
    if nodes is not None:
        read = torch.zeros((len(starts), steps - 1), dtype=torch.int64)
        count = min(steps, nodes.shape[1]) - 1
        read[:, :count] = nodes[:, :count]
        behind = torch.cat([behind, torch.cat([starts[:, None], read], 1)])
    distinct, places = torch.unique(behind, dim=0, return_inverse=True)
    last = distinct[:, 0].contiguous()
    first = begun.first.at(torch.searchsorted(begun.rows, last))
    forced = distinct[:, 1:] if steps > 1 else None
    found = chain(draft, begun.context, first, last, last, steps, forced)
    return found, places[: len(judged)], places[len(judged) :]


def _whole(
    draft: ReferenceDraft,
    rows: Rows,
    rounds: Rounds,
    chosen: Chosen,
    begun: Begun,
    found: list[ChainStep],
    places: torch.Tensor,
    same: torch.Tensor,
    rounding: float,
) -> Whole:
    starts, count = rounds.rows[chosen.rounds], same.shape[1]
    hidden = None
    if rounds.hidden is not None:
        theirs = rounds.hidden[chosen.rounds][:, :, 0].to(torch.float32)
        errors = [
            (step.hidden[places] - theirs[:, k]).norm(dim=-1)
            / theirs[:, k].norm(dim=-1).clamp_min(1e-30)
            for k, step in enumerate(found[: theirs.shape[1]])
        ]
        hidden = torch.stack(errors, 1)
    picked = torch.stack([step.target_ids[places] for step in found[:count]], 1)
    # Read the engine's tokens or its own: the same thing as long as they are the same.
    left = (~same[:, :-1].all(dim=1)).nonzero().flatten()
    if len(left):
        begun_again = begun.first.at(torch.searchsorted(begun.rows, starts[left]))
        ran = chain(draft, begun.context, begun_again, starts[left], starts[left], count)
        picked[left] = torch.stack([step.target_ids for step in ran], 1)
    targets = torch.stack([rows.targets(k)[starts] for k in range(count)], 1)
    return Whole(
        picked == targets,
        targets >= 0,
        hidden,
        _ranks(draft, rounds, chosen, found[:count], places, rounding),
    )


def _ranks(
    draft: ReferenceDraft,
    rounds: Rounds,
    chosen: Chosen,
    found: list[ChainStep],
    places: torch.Tensor,
    rounding: float,
) -> torch.Tensor:
    theirs, correct = rounds.ranks[chosen.rounds], rounds.correct[chosen.rounds]
    result = [torch.empty((0, 4), dtype=torch.int64)]
    for k, step in enumerate(found):
        these = ((correct == k) & (theirs > 0)).nonzero().flatten()
        if len(these):
            wanted = rounds.following[chosen.rounds][these]
            mine = ranks(draft, step.normed[places[these]], wanted, rounding)
            result.append(torch.cat([theirs[these, None], mine], 1))
    return torch.cat(result)


def _against_trees(
    draft: ReferenceDraft,
    played: Played,
    rows: Rows,
    rounds: Rounds,
    chosen: Chosen,
    begun: Begun,
    rounding: float,
    roots: torch.Tensor | None,
) -> Played:
    """Step k agrees when the trees have the same paths of k + 1 tokens. ``roots``: int64 [R], where
    each step reads the token that the step before it read the next one of; None: each reads the
    token before its own."""
    starts = rounds.rows[chosen.rounds]
    first = begun.first.at(torch.searchsorted(begun.rows, starts))
    steps, topk, nodes = rows.steps, rows.topk, rounds.node_ids.shape[1] + 1
    grown = tree(draft, begun.context, first, starts, starts, steps, topk, nodes, roots)
    same = torch.ones((len(starts), steps), dtype=torch.bool)
    ties = torch.zeros_like(same)
    for index, round_ in enumerate(chosen.rounds.tolist()):
        mine = paths(grown.node_ids[index], grown.parents[index])
        theirs = paths(rounds.node_ids[round_], rounds.parents[round_])
        if mine == theirs:
            continue
        limits = Rounding(grown.candidates, index, rounding, mine, theirs)
        for step in range(steps):
            if mine[step : step + 1] != theirs[step : step + 1]:
                same[index, step] = False
                ties[index, step] = limits.explains(step)
    return Played(played.right, played.known, same, ties)
