"""One saved sequence of a trainer: its ids, and its states when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.offline.comparing.training_states.record import Stored, Value, squeezed

LastForm = Literal["post-norm", "pre-norm", "unknown"]
"""Whether the target's final norm was applied to the last state."""


@dataclass(frozen=True)
class States:
    """What the target's forward left in training.

    Attributes:
        slots: aux hidden states [S, n, H] in the order of the file.
        last: the last layer's state [S, H], or None.
    """

    slots: torch.Tensor
    last: torch.Tensor | None = None


@dataclass(frozen=True)
class Sample:
    """One sequence.

    Attributes:
        name: file, and place in it.
        producer: who writes such files, and ``why`` it was taken for that.
        token_ids: int64 [S] as stored.
        rows: of the states.
        slot_count: n of ``States.slots``; 0: the file has the last state only.
        states: reads them.
        ids_ahead: stored id t is the token of row t + ids_ahead (1: ids were shifted left).
        claimed: boundaries h of the slots as the file says, or None.
        stacked: the slots may end with the last state (speculators appends it).
    """

    name: str
    producer: str
    why: str
    token_ids: torch.Tensor
    rows: int
    slot_count: int
    states: Callable[[], States] = field(repr=False)
    ids_ahead: int = 0
    claimed: tuple[int, ...] | None = None
    last_form: LastForm = "unknown"
    stacked: bool = False


@dataclass(frozen=True)
class Part:
    """A tensor of a record that is to be read as rows of states.

    ``load`` gives [S, n, H].
    """

    rows: int
    slots: int
    load: Callable[[], torch.Tensor] = field(repr=False)


def part(value: Value, name: str, label: str, hidden: int) -> Part:
    """States of any of the layouts in use, told apart by their widths.

    [S, nH], [S, n, H] and [n, S, H], each with or without leading ones; or a list of n tensors
    [S, H].

    Args:
        hidden: H, the target's hidden size.

    Raises:
        CheckpointError: the value has none of these layouts.
    """
    if isinstance(value, list):
        parts = [part(entry, f"{name}[{i}]", label, hidden) for i, entry in enumerate(value)]
        if not parts or len({p.rows for p in parts}) != 1 or any(p.slots != 1 for p in parts):
            raise _refused(label, name, "a list whose members are not all [tokens, H]", hidden)
        return Part(parts[0].rows, len(parts), lambda: torch.cat([p.load() for p in parts], dim=1))
    if not isinstance(value, Stored):
        raise _refused(label, name, f"a {type(value).__name__}", hidden)
    if not value.floating:
        raise _refused(label, name, f"{value.dtype}", hidden)
    shape = squeezed(value.shape, 2)
    if len(shape) == 2 and shape[1] and shape[1] % hidden == 0:
        rows, slots = shape[0], shape[1] // hidden
        return Part(rows, slots, lambda: value.load().reshape(rows, slots, hidden))
    if len(shape) == 3 and shape[2] == hidden:
        # Both [S, n, H] and [n, S, H] are in use; there are fewer slots than tokens.
        if shape[0] < shape[1]:
            slots, rows = shape[:2]
            return Part(
                rows, slots, lambda: value.load().reshape(shape).transpose(0, 1).contiguous()
            )
        rows, slots = shape[:2]
        return Part(rows, slots, lambda: value.load().reshape(shape))
    raise _refused(label, name, f"of shape {list(value.shape[:8])}", hidden)


def _refused(label: str, name: str, what: str, hidden: int) -> CheckpointError:
    return CheckpointError(
        f"{shown(label)}: {shown(name)} is {what}, expected floating point rows of {hidden} (the "
        "capture's hidden size) or a multiple of it. Fix: give states of the same target."
    )


def sample(
    label: str,
    producer: str,
    why: str,
    ids: torch.Tensor,
    aux: Part | None,
    last: Part | None,
    *,
    ids_ahead: int = 0,
    claimed: tuple[int, ...] | None = None,
    last_form: LastForm = "unknown",
    stacked: bool = False,
) -> Sample:
    """A sample out of its parts.

    Raises:
        CheckpointError: the parts have different numbers of rows, or ``last`` is not H wide.
    """
    rows = aux.rows if aux is not None else last.rows if last is not None else 0
    for found in (aux, last):
        if found is not None and found.rows != len(ids):
            raise CheckpointError(
                f"{shown(label)} has {len(ids)} token ids and {found.rows} rows of states. Fix: "
                "save the ids of the same tokens."
            )
    if last is not None and last.slots != 1:
        raise CheckpointError(
            f"{shown(label)}: what should be the last state is {last.slots} states wide. Fix: give "
            "states of the same target."
        )

    def states() -> States:
        final = last.load()[:, 0] if last is not None else None
        if aux is not None:
            return States(aux.load(), final)
        assert last is not None
        return States(last.load()[:, :0], final)

    return Sample(
        name=label,
        producer=producer,
        why=why,
        token_ids=ids,
        rows=rows,
        slot_count=aux.slots if aux is not None else 0,
        states=states,
        ids_ahead=ids_ahead,
        claimed=claimed,
        last_form=last_form,
        stacked=stacked,
    )
