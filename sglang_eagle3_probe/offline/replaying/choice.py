"""Which requests, rows and rounds of a capture a draft is played on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft
from sglang_eagle3_probe.offline.replaying.replay_play import Chosen, thinned
from sglang_eagle3_probe.offline.replaying.replay_rows import Rows, rows_of

OPERATIONS = 8e11
"""Multiplications and additions of one variation: some seconds on two cores."""
LARGE = 1024
"""Rows: where ``OPERATIONS`` suffice for no more, the draft is a large one."""
STEPS = 3
"""Steps judged where a capture does not say how many were drafted."""
REQUESTS = 4
"""At most so many, of a large draft: the rows before those judged have their cost too."""
BEFORE = 4
"""So many times the rows judged, of a large draft, are read at most, if one request is no more."""


def affordable(draft: ReferenceDraft) -> int:
    """Rows to try a variation on: within ``OPERATIONS``, 128 at least and 4096 at most."""
    numbers = sum(
        shape[0] * shape[1]
        for name, shape in draft.weights.shapes.items()
        if len(shape) == 2 and name not in ("fc.weight", "embed_tokens.weight")
    )
    return int(min(4096, max(128, OPERATIONS / (2 * STEPS * max(1, numbers)))))


def take(
    requests: Iterable[CapturedRequest], tokens: int
) -> tuple[list[Rows], list[PieceInfo], list[str]]:
    """Requests of one shape that can be replayed, until so many tokens are taken; and in words the
    others.

    Raises:
        CheckpointError: there is none.
    """
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


def _shape(rows: Rows) -> tuple[int, int, int]:
    return rows.steps, rows.topk, rows.nodes


def spread(chosen: Sequence[Chosen], rows: int, rounds: int) -> list[Chosen]:
    """At most about so many of all together, evenly spread over each request."""
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


def foremost(
    taken: Sequence[Rows], chosen: Sequence[Chosen], rows: int, rounds: int
) -> list[Chosen]:
    """At most so many rows of all together, the first ones of the requests with the shortest
    prompts, and rounds among them: every row before the last judged one has to be read."""
    starts = {i: int(c.rows[0]) for i, c in enumerate(chosen) if len(c.rows)}
    order = sorted(starts, key=lambda i: starts[i])
    requests, read = 0, 0
    for index in order[:REQUESTS]:
        read += starts[index] + rows
        if requests and read > BEFORE * rows:
            break
        requests += 1
    most, left = -(-rows // max(1, requests)), rows
    none = torch.empty(0, dtype=torch.int64)
    found = [Chosen(none, none) for _ in chosen]
    for index in order:
        mine = chosen[index].rows[: min(most, left)]
        if not len(mine):
            break
        left -= len(mine)
        its, at = taken[index].rounds, chosen[index].rounds
        if its is not None:
            at = at[its.rows[at] <= mine[-1]][: -(-rounds * len(mine) // rows)]
        found[index] = Chosen(mine, at)
    return found


def cut(rows: Rows, chosen: Chosen) -> Rows:
    """Without what stands behind the last row that is needed."""
    last = [chosen.rows[-1:]]
    if rows.rounds is not None:
        last.append(rows.rounds.rows[chosen.rounds][-1:])
    return replace(rows, aux=rows.aux[: int(torch.cat(last).max()) + 1])
