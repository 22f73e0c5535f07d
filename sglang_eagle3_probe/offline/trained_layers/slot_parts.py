"""What each aux slot adds to a draft's input for each boundary: ``fc`` is linear.

``fc(cat(b_i, b_j, b_k)) = W_0 b_i + W_1 b_j + W_2 b_k``, so that any combination of boundaries is a
sum of products that are made once. A norm a slot goes into the products; the one norm over all
slots (``norm_before_fc``) couples them only by one number a row, which is kept beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.drafts.draft_layers import rms_norm
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft

MEAN = -1
"""Column that stands for "not chosen yet": the mean over all boundaries."""


@dataclass(frozen=True)
class Part:
    """``product`` [T, G] and the mean ``square`` [T, 1] of the states, of one slot."""

    product: torch.Tensor
    square: torch.Tensor


class SlotParts:
    """The products of a draft's ``fc``, made when they are needed.

    Attributes:
        slots: aux slots that ``fc`` takes; 1 without ``fc``.

    Raises:
        CheckpointError: the states are not as wide as ``fc`` wants.
    """

    def __init__(self, draft: ReferenceDraft, width: int) -> None:
        plan = self.plan = draft.plan
        self.draft = draft
        self.slots = max(plan.slots, 1)
        wanted = plan.target_hidden if plan.slots else plan.hidden
        if width != wanted:
            raise CheckpointError(
                f"the captured states are {width} wide, the draft takes {wanted} a slot. Fix: "
                "give the draft that belongs to this target."
            )
        order = plan.slot_order or tuple(range(self.slots))
        weight = draft.weights.get("fc.weight") if plan.slots else None
        self._blocks: list[torch.Tensor] | None = None
        if weight is not None:
            # slot_order says which given slot each block of fc reads; here blocks go to slots.
            blocks = weight.to(torch.float32).split(width, dim=1)
            self._blocks = [blocks[order.index(slot)] for slot in range(self.slots)]
        self._order = order
        self._bias = draft.weights.get("fc.bias", required=False)

    def part(self, slot: int, states: torch.Tensor) -> Part:
        """What ``states`` [T, H] of one boundary add when they come at ``slot``."""
        x = states.to(torch.float32)
        square = x.square().mean(-1, keepdim=True)
        if self._blocks is None:
            return Part(x, square)
        width, block = x.shape[-1], self._order.index(slot)
        if self.plan.norm_before_fc:
            whole = self.draft.weights.norm("input_norm.weight", width * self.slots)
            x = x * whole.to(torch.float32)[block * width : (block + 1) * width]
        if self.plan.fc_norm:
            own = self.draft.weights.norm(f"fc_norm.{block}.weight", width)
            x = rms_norm(x, own, self.plan.eps)
        return Part(x @ self._blocks[slot].T, square)

    def combine(self, parts: Sequence[Part]) -> torch.Tensor:
        """Features [T, G] of one combination: a part a slot."""
        total = parts[0].product
        for part in parts[1:]:
            total = total + part.product
        if self.plan.norm_before_fc and not self.plan.fc_norm and self._blocks is not None:
            square = torch.stack([part.square for part in parts]).mean(0)
            total = total * torch.rsqrt(square + self.plan.eps)
        return total if self._bias is None else total + self._bias.to(torch.float32)

    def features(self, states: torch.Tensor, columns: Sequence[int]) -> torch.Tensor:
        """Features [T, G] of columns of ``states`` [T, B, H], without keeping products."""
        return self.combine([self.part(slot, states[:, c]) for slot, c in enumerate(columns)])


class KeptParts:
    """All products of a few rows, [A, B+1] parts; the last column is the mean of the others."""

    def __init__(self, parts: SlotParts, states: torch.Tensor) -> None:
        self._parts = parts
        self._kept: list[list[Part]] = []
        for slot in range(parts.slots):
            row = [parts.part(slot, states[:, column]) for column in range(states.shape[1])]
            product = row[0].product.clone()
            square = row[0].square.clone()
            for part in row[1:]:
                product += part.product
                square += part.square
            row.append(Part(product / len(row), square / len(row)))
            self._kept.append(row)

    def features(self, columns: Sequence[int]) -> torch.Tensor:
        """Features [T, G] of one combination; a column may be ``MEAN``."""
        return self._parts.combine([self._kept[slot][c] for slot, c in enumerate(columns)])
