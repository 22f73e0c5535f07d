"""An EAGLE-3 draft in plain torch on the CPU: what its weights compute, in any variation.

Letters: T rows (positions of one sequence), A aux slots, H width of the target, G of the draft, V
draft vocabulary, S steps. Row t holds the state of the target at position p_t and the id of the
token *after* it, and predicts the token after that one. Step k of row t sits at position p_t + k,
reads the token k places further on, and the row's own recurrent state of step k - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from sglang_eagle3_probe.checkpoint.facts import CheckpointError
from sglang_eagle3_probe.offline.drafts.draft_layers import DraftLayer, Keys, rms_norm
from sglang_eagle3_probe.offline.drafts.draft_plan import DraftPlan, served_plan, trained_changes
from sglang_eagle3_probe.offline.drafts.draft_weights import (
    EMBEDDINGS,
    HEADS,
    NORMS,
    DraftWeights,
    Folder,
    apply,
)
from sglang_eagle3_probe.offline.drafts.rotary import Rotary

LOGITS = 1 << 26
"""Logits that are held at once where only the best are wanted."""
Context = list[Keys]
"""Keys and values of the accepted rows, one entry a layer."""


@dataclass(frozen=True)
class Output:
    """What a step gives for R rows: ``normed`` [R, G] goes to the head, ``hidden`` [R, G] is the
    recurrent state, ``own`` the step's keys, one entry a layer, ``stream`` [R, G] what the last
    layer gave, from which ``end`` makes the others."""

    normed: torch.Tensor
    hidden: torch.Tensor
    own: Context
    stream: torch.Tensor | None = None

    def at(self, rows: torch.Tensor) -> Output:
        """Some of the rows, without keys."""
        stream = None if self.stream is None else self.stream[rows]
        return Output(self.normed[rows], self.hidden[rows], [], stream)


@dataclass(frozen=True)
class Best:
    """The best K draft ids of R rows.

    Attributes:
        draft_ids: [R, K] in the draft vocabulary, best first.
        probabilities: float32 [R, K], over the draft vocabulary.
        gaps: float32 [R], first logit minus the second; infinite with a single one.
        sizes: float32 [R], largest magnitude among the two, to judge rounding by.
    """

    draft_ids: torch.Tensor
    probabilities: torch.Tensor
    gaps: torch.Tensor
    sizes: torch.Tensor


class ReferenceDraft:
    """A draft's weights with one ``DraftPlan`` of running them. Copies made by ``varied`` share the
    weights, which never ask for gradients.

    Attributes:
        plan: what is computed.
        dtype: that activations are computed in; weights stay as stored.
    """

    def __init__(self, weights: DraftWeights, plan: DraftPlan, dtype: torch.dtype) -> None:
        self.weights, self.plan, self.dtype = weights, plan, dtype
        rotary = Rotary(plan.rope)
        self.layers = [DraftLayer(plan, weights, i, rotary) for i in range(plan.layers)]

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        target: Path | str | None = None,
        dtype: torch.dtype = torch.float32,
        **variation: Any,
    ) -> ReferenceDraft:
        """A draft as SGLang 0.5.23 serves it, changed by fields of ``DraftPlan``.

        Args:
            folder: the draft's config and safetensors.
            target: the target's folder; embedding and head come from it where the draft has none.
            variation: as for ``varied``, such as ``norm_output=True``.

        Raises:
            CheckpointError: files cannot be read, or do not make a draft.
        """
        weights = DraftWeights(Folder(folder), Folder(target) if target is not None else None)
        plan = served_plan(weights.draft.facts, weights.shapes)
        return cls(weights, plan, dtype).varied(**variation)

    def varied(self, **changes: Any) -> ReferenceDraft:
        """The same weights run otherwise: fields of ``DraftPlan``, or ``theta`` and ``scaling``."""
        changes = dict(changes)
        rope = {k: changes.pop(k) for k in ("theta", "scaling") if k in changes}
        unknown = set(changes) - {field.name for field in fields(DraftPlan)}
        if unknown:
            raise TypeError(f"no such variation: {', '.join(sorted(unknown))}")
        plan = replace(self.plan, **changes)
        if rope:
            plan = replace(plan, rope=replace(plan.rope, **rope))
        return ReferenceDraft(self.weights, plan, self.dtype)

    def as_trained(self) -> ReferenceDraft:
        """With what the files say that training did and SGLang does not."""
        return self.varied(**self.trained_changes)

    @property
    def trained_changes(self) -> Mapping[str, Any]:
        """Fields of the plan in which training differs from serving, by the files."""
        return trained_changes(self.weights.draft.facts, self.weights.shapes)

    # -- the parts ------------------------------------------------------------------------------

    def features(self, aux: torch.Tensor) -> torch.Tensor:
        """Aux states [T, A*H] -> what the draft's layer 0 reads, [T, G]: ``fc`` with its norms.

        States that are G wide already pass as they are, as in SGLang.

        Raises:
            CheckpointError: ``fc`` takes another width.
        """
        plan = self.plan
        x = aux.to(self.dtype)
        if plan.slot_order:
            blocks = x.split(plan.target_hidden, dim=-1)
            if max(plan.slot_order) >= len(blocks):
                raise CheckpointError(
                    f"the states have {len(blocks)} slots of {plan.target_hidden}, asked for slot "
                    f"{max(plan.slot_order)}. Fix: replay the draft that was served."
                )
            x = torch.cat([blocks[slot] for slot in plan.slot_order], dim=-1)
        if x.shape[-1] == plan.hidden:
            return x
        if plan.fc == "skip":
            return x[:, : plan.hidden]
        width = plan.slots * plan.target_hidden
        if x.shape[-1] != width:
            raise CheckpointError(
                f"fc of the draft takes {width} ({plan.slots} slots of {plan.target_hidden}), the "
                f"states are {x.shape[-1]} wide. Fix: replay the draft that was served."
            )
        if plan.norm_before_fc:
            x = rms_norm(x, self.weights.norm("input_norm.weight", width), plan.eps)
        if plan.fc_norm:
            chunks = x.split(plan.target_hidden, dim=-1)
            norms = [
                self.weights.norm(f"fc_norm.{i}.weight", plan.target_hidden)
                for i in range(plan.slots)
            ]
            x = torch.cat(
                [rms_norm(c, n, plan.eps) for c, n in zip(chunks, norms, strict=True)], dim=-1
            )
        weight = self.weights.get("fc.weight")
        assert weight is not None
        return apply(x, weight, self.weights.get("fc.bias", required=False))

    def embed(self, ids: torch.Tensor, *, beyond: bool = False) -> torch.Tensor:
        """Embeddings [T, G] of target ids [T], from whichever table the plan says.

        Args:
            beyond: ids outside the table, which a wrong vocabulary map makes, are zeros.
        """
        if self.plan.embedding == "own":
            folder, name = self.weights.draft, self.weights.stored.get("embed_tokens.weight", "")
            if not name:
                raise CheckpointError(
                    "the draft has no embedding of its own (embed_tokens.weight). Fix: replay it "
                    "with the target's."
                )
        else:
            folder, name = self.weights.of_target(EMBEDDINGS, "embedding")
        distinct, inverse = torch.unique(ids, return_inverse=True)
        inside = torch.ones_like(distinct, dtype=torch.bool)
        if beyond:
            inside = (distinct >= 0) & (distinct < folder.entry(name)[1].info.shape[0])
        rows = folder.rows(name, torch.where(inside, distinct, 0)) * inside[:, None]
        if rows.shape[1] != self.plan.hidden:
            raise CheckpointError(
                f"the embedding of {folder.facts.path} is {rows.shape[1]} wide, the draft "
                f"{self.plan.hidden}. Fix: give the target that belongs to the draft."
            )
        return rows.to(self.dtype)[inverse]

    def head(self) -> torch.Tensor:
        """The head in use, [V, G], as stored."""
        if self.plan.head == "target":
            return self.weights.target_tensor(HEADS, "head")
        if self.plan.head == "tied":
            if self.plan.embedding == "target":
                return self.weights.target_tensor(EMBEDDINGS, "head, which is tied to an embedding")
            found = self.weights.get("embed_tokens.weight")
        else:
            found = self.weights.get("lm_head.weight")
        assert found is not None
        return found

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """[R, G] -> [R, V]."""
        return apply(normed, self.head())

    def best(self, normed: torch.Tensor, count: int = 1) -> Best:
        """The best draft ids of rows [R, G], without holding all logits."""
        head = self.head()
        chunk = max(1, LOGITS // head.shape[0])
        ids, shares, gaps, sizes = [], [], [], []
        for part in normed.split(chunk):
            logits = apply(part, head).to(torch.float32)
            top = logits.topk(min(max(count, 2), logits.shape[1]), dim=-1)
            ids.append(top.indices[:, :count])
            shares.append((top.values[:, :count] - logits.logsumexp(-1, keepdim=True)).exp())
            two = top.values[:, :2]
            gaps.append(
                two[:, 0] - two[:, 1]
                if two.shape[1] == 2
                else torch.full_like(two[:, 0], torch.inf)
            )
            sizes.append(two.abs().amax(-1))
        if not ids:
            none = torch.empty(0, dtype=torch.float32)
            return Best(
                torch.empty(0, count, dtype=torch.int64),
                none.view(0, 1).expand(0, count),
                none,
                none,
            )
        return Best(torch.cat(ids), torch.cat(shares), torch.cat(gaps), torch.cat(sizes))

    def target_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Draft ids of any shape -> target ids, as ``hot_token_id`` of SGLang has them."""
        d2t = self.weights.get("d2t", required=False)
        if d2t is None or self.plan.vocabulary_map == "none":
            return draft_ids
        stored = d2t.to(torch.int64)[draft_ids]
        return stored if self.plan.vocabulary_map == "direct" else stored + draft_ids

    # -- the forward ----------------------------------------------------------------------------

    def begin(
        self,
        next_ids: torch.Tensor,
        features: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor | None = None,
    ) -> tuple[Output, Context]:
        """Step 0 over one sequence: every row sees the rows up to itself.

        Args:
            next_ids: int64 [T], the token after each row.
            features: [T, G].
            positions: int64 [T].
            rows: ascending row indices [R] whose output is wanted; None: all. Their cost is most
                of a forward's.

        Returns:
            The output of these rows (``own`` is empty), and the keys of all rows.
        """
        everything = torch.arange(len(next_ids))
        wanted = everything if rows is None else rows
        stream = features.to(self.dtype)
        embeddings = self.embed(next_ids)
        context: Context = []
        for index, layer in enumerate(self.layers):
            x, residual = layer.attention_input(embeddings, stream)
            keys = layer.project_keys(x, positions)
            context.append(keys)
            at = wanted if index == len(self.layers) - 1 else everything
            stream = layer.finish(x[at], residual[at], positions[at], keys, at, [])
        return self.end(stream, []), context

    def follow(
        self,
        context: Context,
        last: torch.Tensor,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        earlier: list[Context],
    ) -> Output:
        """A later step of R chains, each behind one row of the sequence.

        Args:
            context: keys of the sequence, from ``begin``.
            last: int64 [R], the row that each chain starts at; it sees rows 0 to ``last``.
            ids: int64 [R], the token that each chain reads.
            hidden: [R, G], the recurrent states.
            positions: int64 [R].
            earlier: ``own`` of the steps from 1 on that these chains took before.
        """
        stream = hidden.to(self.dtype)
        embeddings = self.embed(ids, beyond=True)
        own: Context = []
        for index, layer in enumerate(self.layers):
            x, residual = layer.attention_input(embeddings, stream)
            keys = layer.project_keys(x, positions)
            own.append(keys)
            chain = [*(step[index] for step in earlier), keys]
            stream = layer.finish(x, residual, positions, context[index], last, chain)
        return self.end(stream, own)

    def end(self, stream: torch.Tensor, own: Context) -> Output:
        """What follows the last layer, [R, G]."""
        normed = stream
        if self.plan.last_norm == "own":
            weight = self.weights.norm("norm.weight", self.plan.hidden)
            normed = rms_norm(stream, weight, self.plan.eps)
        elif self.plan.last_norm == "target":
            weight = self.weights.target_tensor(NORMS, "last norm")
            normed = rms_norm(stream, weight, self.plan.eps)
        return Output(normed, normed if self.plan.norm_output else stream, own, stream)

    def run(
        self, next_ids: torch.Tensor, features: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Step 0 of a whole sequence: logits [T, V] and recurrent states [T, G]."""
        output, _ = self.begin(next_ids, features, positions)
        return self.logits(output.normed), output.hidden

    def steps(
        self,
        next_ids: torch.Tensor,
        features: torch.Tensor,
        positions: torch.Tensor,
        count: int,
        rows: torch.Tensor | None = None,
    ) -> list[Output]:
        """Teacher-forced steps 0 to ``count - 1`` of all rows, as trainers unroll them.

        Row t of step k reads ``next_ids[t + k]`` and sees step 0 of the rows up to t and its own
        later steps.

        Args:
            next_ids: int64 [T + count - 1].
            rows: row indices [R] whose output is wanted; None: all T.

        Returns:
            One ``Output`` a step, each of R rows; ``logits`` and ``best`` take their ``normed``.
        """
        wanted = torch.arange(len(features)) if rows is None else rows
        first, context = self.begin(next_ids[: len(features)], features, positions, rows)
        outputs = [first]
        earlier: list[Context] = []
        for step in range(1, count):
            output = self.follow(
                context,
                wanted,
                next_ids[wanted + step],
                outputs[-1].hidden,
                positions[wanted] + step,
                earlier,
            )
            outputs.append(output)
            earlier.append(output.own)
        return outputs
