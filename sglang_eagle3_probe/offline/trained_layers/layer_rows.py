"""Captured requests as rows to judge layer combinations by: states, next token, target's choice.

Row t of a stretch holds the target's state at position p_t and the token after it; the draft
predicts the token after that one, so its label is the target's choice at position p_t + 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.offline.captured import CapturedRequest

SHORTEST = 8
"""Rows; a shorter stretch tells nothing that its own beginning does not blur."""
ROWS = 8192
"""Rows that are read at most."""
BYTES = 1 << 32
"""And what their states may take."""
EACH = 512
"""Rows of a request that are used at least, if it has them: few long requests tell less than many
short ones, as rows of one request are alike."""


@dataclass(frozen=True)
class Stretch:
    """Positions of one request without a hole.

    Attributes:
        request: number of the request, from 0.
        states: [T, B, H] as captured. next_ids: int64 [T], the token after each row.
        positions: int64 [T].
        choice_ids: int64 [T], the next but one token where the target chose it, else -1.
        final: [T, H], the target's state after its last norm one position later; None: not
            captured.
    """

    request: int
    states: torch.Tensor
    next_ids: torch.Tensor
    positions: torch.Tensor
    choice_ids: torch.Tensor
    final: torch.Tensor | None

    def __len__(self) -> int:
        return len(self.next_ids)

    def part(self, start: int, stop: int) -> Stretch:
        """Rows ``start`` to ``stop - 1`` as a stretch of their own."""
        cut = slice(start, stop)
        return Stretch(
            self.request,
            self.states[cut],
            self.next_ids[cut],
            self.positions[cut],
            self.choice_ids[cut],
            None if self.final is None else self.final[cut],
        )


@dataclass(frozen=True)
class LayerRows:
    """Everything that is judged.

    Attributes:
        info: of the first request.
        boundaries: h of the columns of ``Stretch.states``.
        served: boundaries that the server handed the draft, in their order.
        left_out: what was not used, and why.
    """

    info: PieceInfo
    boundaries: tuple[int, ...]
    stretches: tuple[Stretch, ...]
    requests: int
    left_out: tuple[str, ...] = field(default=())

    @property
    def served(self) -> tuple[int, ...]:
        return tuple(self.info.boundaries)

    @property
    def rows(self) -> int:
        return sum(len(stretch) for stretch in self.stretches)


def collect(
    requests: Iterable[CapturedRequest], *, limit: int = ROWS, expected: int = 1
) -> LayerRows:
    """Stretches of all requests that hold all boundaries, until there are ``limit`` rows.

    Args:
        expected: requests that there will be, to give each its share of the rows; the last ones of
            a request are used, where its answer is.

    Raises:
        CheckpointError: no request does, or they come from differently wired servers.
    """
    first: PieceInfo | None = None
    boundaries: tuple[int, ...] = ()
    stretches: list[Stretch] = []
    left_out: list[str] = []
    rows = number = without = copies = 0
    for request in requests:
        info = request.info
        if request.boundary_states is None:
            without += 1
            continue
        if first is None:
            first, boundaries = info, tuple(info.all_boundaries)
            states = request.boundary_states
            limit = min(limit, max(1, BYTES // (states[:1].numel() * states.element_size())))
        if info.tp_rank != first.tp_rank:
            # Ranks of one group hold the same states; as requests of their own they would count
            # as evidence twice.
            copies += 1
            continue
        if (info.all_boundaries, info.hidden_width) != (first.all_boundaries, first.hidden_width):
            raise CheckpointError(
                f"request {shown(info.request)} was captured from another target than the first "
                "one (its boundaries or its width differ). Fix: give the captures of one run."
            )
        if stretches and limit - rows < SHORTEST:
            left_out.append(f"further requests: {limit} rows are enough")
            break
        share = max(EACH, limit // max(1, expected))
        found = list(_stretches(request, number, min(share, limit - rows)))
        stretches += found
        rows += sum(len(stretch) for stretch in found)
        number += bool(found)
    if first is None or not stretches:
        raise CheckpointError(
            (
                f"the {without} captured requests hold only the states that the draft was handed, "
                "not all boundaries"
                if without
                else f"no captured request has {SHORTEST} positions in a row with all boundaries"
            )
            + ". Fix: serve with --enable-probe --probe-all-layers 24 and send as many requests."
        )
    if without:
        left_out.append(f"{without} requests without all boundaries")
    if copies:
        left_out.append(f"{copies} captures by other tensor-parallel ranks")
    return LayerRows(first, boundaries, tuple(stretches), number, tuple(left_out))


def _stretches(request: CapturedRequest, number: int, limit: int) -> Iterable[Stretch]:
    states = request.boundary_states
    assert states is not None
    tokens = request.token_ids
    length = len(tokens)
    known = request.boundaries_known.clone()
    # The token after each row must be known, or the draft cannot run.
    known[:-1] &= tokens[1:] >= 0
    known[-1:] = False
    chosen = torch.full((length,), -1, dtype=torch.int64)
    answer = torch.arange(length) >= max(request.info.prompt_tokens, 1)
    chosen[:-2] = torch.where(answer[2:], tokens[2:], -1)
    final = request.final_norm
    for start, stop in reversed(list(_runs(known))):
        start = max(start, stop - limit)
        limit -= stop - start
        if stop - start < SHORTEST:
            continue
        later: torch.Tensor | None = None
        if final is not None:
            # The last row's label needs the state one further on, which may not be there.
            if stop >= length or not bool(request.boundaries_known[stop]):
                stop -= 1
            later = final[start + 1 : stop + 1]
        yield Stretch(
            number,
            states[start:stop],
            tokens[start + 1 : stop + 1],
            torch.arange(start, stop),
            chosen[start:stop],
            later,
        )


def _runs(known: torch.Tensor) -> Iterable[tuple[int, int]]:
    edges = torch.diff(known.to(torch.int8), prepend=torch.zeros(1), append=torch.zeros(1))
    starts = torch.nonzero(edges > 0).flatten().tolist()
    stops = torch.nonzero(edges < 0).flatten().tolist()
    return zip(starts, stops, strict=True)
