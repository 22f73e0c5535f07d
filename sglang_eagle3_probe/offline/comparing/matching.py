"""Brings a capture's requests and a trainer's samples together, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.offline.captured import CapturedRequest
from sglang_eagle3_probe.offline.comparing.alignment import (
    MOST_TOKENS,
    WINDOW,
    Run,
    WindowIndex,
    aligned,
)
from sglang_eagle3_probe.offline.comparing.measures import relative_errors
from sglang_eagle3_probe.offline.comparing.pairs import Alignment, Pairs
from sglang_eagle3_probe.offline.comparing.training_states.found import Search
from sglang_eagle3_probe.offline.comparing.training_states.sample import Sample, States

LEAST_ROWS = 16
"""Fewer rows say nothing about medians."""
MOST_ROWS = 2048
ROWS_BYTES = 1 << 30
SHIFTS = (0, 1, -1, 2, -2)
SHIFT_ROWS = 256
"""Rows that a shift is judged by."""
CLEAR = 0.5
"""A shift is believed if it takes off half of the error."""


@dataclass
class Matched:
    """What was found, and what was passed over."""

    pairs: Pairs
    alignments: list[Alignment]
    notes: list[str] = field(default_factory=list)
    samples: int = 0


def match(requests: Iterable[CapturedRequest], search: Search) -> Matched:
    """The rows of all requests that some sample holds too.

    Raises:
        CheckpointError: fewer than ``LEAST_ROWS`` rows in all, or nothing could be read.
    """
    samples, notes = _samples(search)
    if samples and not any(sample.slot_count for sample in samples):
        raise CheckpointError(
            f"{shown(search.source)} holds no aux hidden states, only the last state "
            f"({samples[0].producer}: {samples[0].why}). Fix: save the aux states in the trainer's "
            "data step, or name the folder that has them."
        )
    index = WindowIndex([sample.token_ids for sample in samples])
    groups: dict[tuple[object, ...], _Group] = {}
    longest = 0
    for request in requests:
        found = _best(request, samples, index)
        if found is None:
            continue
        sample, run = found
        longest = max(longest, run.length)
        info = request.info
        key = (*info.boundaries, None, *info.all_boundaries, None, sample.slot_count)
        group = groups.setdefault(key, _Group(bool(info.all_boundaries)))
        if not group.full:
            group.add(*_rows(request, sample, run, group.rows, len(group.alignments)))
    # Rows with all boundaries can be named where others cannot, so a few of them are worth more.
    best = max(groups.values(), key=_Group.worth, default=None)
    if best is None or best.rows < LEAST_ROWS:
        raise CheckpointError(
            f"{best.rows if best is not None else 0} tokens with states are in both the capture "
            f"and {shown(search.source)} ({len(samples)} saved sequences; the longest common run "
            f"of ids is {longest}), expected at least {LEAST_ROWS}. Fix: send the ids of a saved "
            "sequence to the server (input_ids of /generate) with --disable-radix-cache, at level "
            "capture."
        )
    left_out = sum(len(group.alignments) for group in groups.values() if group is not best)
    if left_out:
        notes.append(
            f"{left_out} matching requests were left out: other layers were captured for them, or "
            "the states beside them have another number of slots"
        )
    if best.full:
        notes.append(f"compared on {best.rows} rows; more would not change medians")
    return Matched(_joined(best.parts, best.alignments), best.alignments, notes, len(samples))


@dataclass
class _Group:
    """Requests of which the same states were captured."""

    all_boundaries: bool
    parts: list[Pairs] = field(default_factory=list)
    alignments: list[Alignment] = field(default_factory=list)
    full: bool = False

    @property
    def rows(self) -> int:
        return sum(alignment.rows for alignment in self.alignments)

    def worth(self) -> tuple[bool, bool, int]:
        return self.rows >= LEAST_ROWS, self.all_boundaries, self.rows

    def add(self, part: Pairs, alignment: Alignment, full: bool) -> None:
        self.full = full
        if alignment.rows:
            self.parts.append(part)
            self.alignments.append(alignment)


def _samples(search: Search) -> tuple[list[Sample], list[str]]:
    samples: list[Sample] = []
    tokens = 0
    notes = []
    for sample in search.samples():
        tokens += len(sample.token_ids)
        if tokens > MOST_TOKENS:
            notes.append(f"looked through the first {len(samples)} saved sequences only")
            break
        samples.append(sample)
    if search.cut:
        notes.append(f"looked through the first {search.files} files only")
    if search.unread:
        notes.append(f"{len(search.unread)} files could not be read; the first: {search.unread[0]}")
    return samples, notes


def _best(
    request: CapturedRequest, samples: Sequence[Sample], index: WindowIndex
) -> tuple[Sample, Run] | None:
    """The sample with the longest run, a common beginning first."""
    found: list[tuple[bool, int, Sample, Run]] = []
    for number in index.candidates(request.token_ids):
        run = aligned(request.token_ids, samples[number].token_ids)
        if run.length >= WINDOW:
            found.append((_same_beginning(samples[number], run), run.length, samples[number], run))
    if not found:
        return None
    _same, _length, sample, run = max(found, key=lambda entry: entry[:2])
    return sample, run


def _same_beginning(sample: Sample, run: Run) -> bool:
    return run.second_start == 0 and run.first_start == sample.ids_ahead


def _rows(
    request: CapturedRequest, sample: Sample, run: Run, used: int, number: int
) -> tuple[Pairs, Alignment, bool]:
    """The rows that both sides have, as many as still fit, and whether more would not."""
    info = request.info
    states = _states(sample, len(info.boundaries))
    positions = torch.arange(run.first_start, run.first_start + run.length)
    rows = torch.arange(run.second_start, run.second_start + run.length) + sample.ids_ahead
    usable = request.aux_known[positions] & (rows < sample.rows)
    if bool(request.boundaries_known.any()):
        usable &= request.boundaries_known[positions]
    positions, rows = positions[usable], rows[usable]
    shift = 0
    if len(rows):
        served = request.aux.reshape(len(request.aux), len(info.boundaries), -1)
        shift = row_shift(served, positions, states.slots, rows)
        inside = (rows + shift >= 0) & (rows + shift < sample.rows)
        positions, rows = positions[inside], rows[inside] + shift
    most = max(LEAST_ROWS, min(MOST_ROWS, ROWS_BYTES // max(1, _row_bytes(request, states))))
    full = used + len(rows) >= most
    if full:
        chosen = (
            torch.linspace(0, len(rows) - 1, max(0, min(len(rows), most - used))).round().long()
        )
        positions, rows = positions[chosen], rows[chosen]
    same = _same_beginning(sample, run)
    alignment = Alignment(
        request=info.request,
        sample=sample.name,
        producer=sample.producer,
        why=sample.why,
        tokens=run.length,
        rows=len(rows),
        first_position=run.first_start,
        first_id=run.second_start,
        same_beginning=same,
        row_shift=shift,
    )
    stack, norm = request.boundary_states, request.final_norm
    pairs = Pairs(
        info=info,
        served=request.aux[positions].reshape(len(rows), len(info.boundaries), info.hidden_width),
        trained=states.slots[rows],
        token_ids=request.token_ids[positions],
        positions=positions,
        request=torch.full((len(rows),), number),
        decoded=positions >= info.prompt_tokens,
        last=states.last[rows] if states.last is not None else None,
        last_form=sample.last_form,
        boundary_states=stack[positions] if stack is not None else None,
        final_norm=norm[positions] if norm is not None else None,
        claimed=sample.claimed,
        same_beginning=same,
    )
    return pairs, alignment, full


def _states(sample: Sample, slots: int) -> States:
    """The sample's states; in a stack with one more than the server has, that is the last state."""
    states = sample.states()
    if sample.stacked and states.last is None and states.slots.shape[1] == slots + 1:
        return States(states.slots[:, :-1], states.slots[:, -1])
    return states


def _row_bytes(request: CapturedRequest, states: States) -> int:
    count = request.aux[0].numel() + states.slots[0].numel()
    if request.boundary_states is not None:
        count += request.boundary_states[0].numel()
    return int(count) * 4


def row_shift(
    served: torch.Tensor, positions: torch.Tensor, trained: torch.Tensor, rows: torch.Tensor
) -> int:
    """By how many rows the states are shifted against what their ids say; 0 unless it is clear.

    Each slot of the sample may be any slot of the capture: a permutation is another matter.

    Args:
        served: [L, A, H] and positions in it; trained: [S, n, H] and the rows that should fit.
    """
    inside = (rows >= 2) & (rows < len(trained) - 2)
    positions, rows = positions[inside][:SHIFT_ROWS], rows[inside][:SHIFT_ROWS]
    if len(rows) < LEAST_ROWS:
        return 0
    by_shift: dict[int, float] = {}
    for shift in SHIFTS:
        errors = [
            min(
                float(relative_errors(trained[rows + shift, j], served[positions, i]).median())
                for i in range(served.shape[1])
            )
            for j in range(trained.shape[1])
        ]
        by_shift[shift] = sum(errors) / len(errors)
    best: int = min(SHIFTS, key=lambda shift: by_shift[shift])
    return best if by_shift[best] < CLEAR * by_shift[0] else 0


def _joined(parts: Sequence[Pairs], alignments: Sequence[Alignment]) -> Pairs:
    """All parts as one; a shift or another beginning of one is told by its alignment."""

    def all_of(name: str) -> torch.Tensor | None:
        found = [getattr(part, name) for part in parts]
        return None if any(value is None for value in found) else torch.cat(found)

    names = ("served", "trained", "token_ids", "positions", "request", "decoded")
    tensors = {name: all_of(name) for name in names}
    optional = {name: all_of(name) for name in ("last", "boundary_states", "final_norm")}
    return replace(
        parts[0],
        **tensors,  # type: ignore[arg-type]
        **optional,  # type: ignore[arg-type]
        same_beginning=all(alignment.same_beginning for alignment in alignments),
    )
