"""Ways in which engines and drafts go wrong, each as a way of running the draft.

A variation that agrees with the engine's tokens says what the engine computes. One that is right
more often than the draft as configured says what it was trained on; ``fix`` makes SGLang do that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from sglang_eagle3_probe.capture.layout import PieceInfo
from sglang_eagle3_probe.checkpoint.rope import DEFAULT_THETA, rope_of
from sglang_eagle3_probe.host.conventions import Unserved, ids_to_write
from sglang_eagle3_probe.offline.drafts.draft_weights import EMBEDDINGS, HEADS, NORMS
from sglang_eagle3_probe.offline.drafts.reference_draft import ReferenceDraft

EMBEDDING_SLOT = -1
"""In ``Variation.slots``: the target's embedding of the row's own token, boundary 0."""
SHIFTED_IDS = {-1: "the token of the row itself", 1: "the token two places on"}
"""Shift -> what stands beside each row then."""
IDS_FIX = (
    "SGLang rotates the ids of each request by one place; look for a patch or a branch of the "
    "draft worker that does not"
)
MOST_PERMUTED = 3
"""Slots of which all orders are tried; of more only neighbours are swapped and all are rotated."""


@dataclass(frozen=True)
class Variation:
    """One way of running a draft.

    Attributes:
        changes: of the plan.
        shift: ids are read so many places further on, beside the rows of a sequence.
        every_step: so they are in the steps of a chain or tree as well.
        slots: what stands in each aux slot: a captured slot, or ``EMBEDDING_SLOT``; empty: as is.
        engine: what the engine does if it agrees with this, as the end of "the engine ...".
        trained: what that says of training, as the end of "the draft was trained ...".
        fix: the edit of config or weights, or the patch, that serves the draft so.
    """

    name: str
    engine: str
    trained: str
    fix: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    shift: int = 0
    every_step: bool = False
    slots: tuple[int, ...] = ()


TRAINED = "as its files say it was trained"
BASE = Variation("as configured", "computes what its files say", "as it is served", "")


def variations(draft: ReferenceDraft, info: PieceInfo) -> Iterator[Variation]:
    """Every variation that these files allow, the draft as configured first.

    Args:
        info: of a captured piece: its boundaries, and who captured them.
    """
    yield BASE
    yield from _ids()
    yield from _slots(draft, info)
    yield from _norms(draft)
    yield from _rope(draft)
    yield from _vocabulary(draft)
    yield from _trained(draft)


def _ids() -> Iterator[Variation]:
    for shift, words in SHIFTED_IDS.items():
        yield Variation(
            f"ids shifted by {shift:+d}",
            f"hands the draft {words} beside each row, not the token after it",
            f"with {words} beside each row, in the first step alone",
            IDS_FIX,
            shift=shift,
        )
        yield Variation(
            f"ids shifted by {shift:+d} in every step",
            f"hands the draft {words} beside each row, not the token after it, and so in every "
            "draft step",
            f"with {words} beside each row",
            IDS_FIX,
            shift=shift,
            every_step=True,
        )


def _slots(draft: ReferenceDraft, info: PieceInfo) -> Iterator[Variation]:
    boundaries = tuple(info.boundaries)
    plan = draft.plan
    count = plan.slots
    if not count or len(boundaries) not in (0, count):
        return  # other states than fc takes: nothing can be put in another order
    yield Variation(
        "fc skipped",
        "does not run fc: the first columns of the states go into the layer as they are",
        "without fc",
        "serve with --speculative-algorithm EAGLE3: EAGLE does not hand the draft aux states",
        {"fc": "skip"},
    )
    if count < 2:
        return
    for order in _orders(count):
        text = ", ".join(map(str, order))
        yield Variation(
            f"slots in order {text}",
            f"takes the slots in order {text}",
            f"with the slots in order {text}",
            f"put the column blocks of fc.weight in the order {_undone(order)} (SGLang joins slots "
            "by ascending layer), or serve the layers that the draft was trained on",
            slots=order,
        )
    if 0 in boundaries or plan.target_hidden != plan.hidden or not _target_has(draft, EMBEDDINGS):
        return
    rest = tuple(range(count))
    for name, slots in (
        ("embedding in slot 0", (EMBEDDING_SLOT, *rest[1:])),
        ("embedding first, slots one later", (EMBEDDING_SLOT, *rest[:-1])),
    ):
        wanted = [0 if s == EMBEDDING_SLOT else boundaries[s] for s in slots] if boundaries else []
        yield Variation(
            name,
            "takes the target's embedding as the first state",
            "on the target's embedding as the first state"
            + (f" (boundaries {', '.join(map(str, wanted))})" if wanted else ""),
            f"set {_ids_text(wanted, info)} in the draft's config.json",
            slots=slots,
        )


def _ids_text(wanted: list[int], info: PieceInfo) -> str:
    """The entry that makes the captured target's class take these boundaries."""
    key = "eagle_config.eagle_aux_hidden_state_layer_ids"
    if not wanted:
        return f"{key} to a list that starts with the embedding (-1 among output ids)"
    if info.target_class and info.sglang and info.num_layers:
        ids = ids_to_write(info.target_class, info.sglang, wanted, info.num_layers)
        if not isinstance(ids, Unserved):
            return f"{key} to {list(ids)}"
    return f"{key} to {[h - 1 for h in wanted]} (output ids; see doctor --explain-ids)"


def _undone(order: tuple[int, ...]) -> list[int]:
    """Where each captured slot went: the order of fc's blocks that needs no other slots."""
    return [order.index(slot) for slot in range(len(order))]


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    plain = tuple(range(count))
    if count <= MOST_PERMUTED:
        yield from (order for order in permutations(plain) if order != plain)
        return
    for turn in range(1, count):
        yield plain[turn:] + plain[:turn]
    for index in range(count - 1):
        swapped = list(plain)
        swapped[index], swapped[index + 1] = swapped[index + 1], swapped[index]
        yield tuple(swapped)


def _norms(draft: ReferenceDraft) -> Iterator[Variation]:
    plan, stored = draft.plan, draft.weights.stored

    def toggle(flag: str, words: str, fix: str) -> Variation:
        on = not getattr(plan, flag)
        state = "on" if on else "off"
        return Variation(
            f"{flag} {state}",
            f"{'applies' if on else 'does not apply'} {words}",
            f"{'with' if on else 'without'} {words}",
            fix.format("true" if on else "false"),
            {flag: on},
        )

    if plan.fc_norm or "fc_norm.0.weight" in stored:
        yield toggle(
            "fc_norm", "the norms of each slot before fc", 'set "fc_norm": {} in its config'
        )
    if plan.norm_before_fc or "input_norm.weight" in stored:
        yield toggle(
            "norm_before_fc",
            "the norm of all slots together before fc",
            'set "norm_before_fc": {} in its config (SGLang 0.5.17 or newer)',
        )
    yield toggle(
        "norm_output",
        "the last norm to the state that the draft hands itself",
        'set "norm_output": {} in its config (SGLang 0.5.12 or newer)',
    )
    yield toggle(
        "norm_before_residual",
        "the norm of the state to the residual as well",
        "SGLang knows no such flag: patch the draft layer's forward (residual = the normed state)",
    )
    yield toggle(
        "double_norm",
        "input_layernorm to the state before hidden_norm (ModelOpt 0.41 to 0.47)",
        "multiply input_layernorm.weight into hidden_norm.weight, which is nearly the same, or "
        "patch the draft layer's forward",
    )
    if plan.last_norm != "none":
        yield Variation(
            "no last norm",
            "applies no norm before the head",
            "without the norm before the head",
            "SGLang always applies the last norm: patch the draft's forward",
            {"last_norm": "none"},
        )
    if _target_has(draft, NORMS) and plan.target_hidden == plan.hidden:
        missing = "norm.weight" not in stored
        yield Variation(
            "last norm of the target",
            "applies the target's last norm before the head",
            "with the target's last norm before the head"
            + (", and its own is missing from its files" if missing else ""),
            "export the draft with norm.weight" + (" (the target's)" if missing else ""),
            {"last_norm": "target"},
        )
    if plan.layers > 1:
        other = "input_layernorm" if plan.later_norm == "hidden_norm" else "hidden_norm"
        yield Variation(
            f"later layers read {other}",
            f"applies {other} before the attention of later layers",
            f"with {other} before the attention of later layers",
            "copy layers.i.input_layernorm to layers.i.hidden_norm for i from 1 on",
            {"later_norm": other},
        )


def _rope(draft: ReferenceDraft) -> Iterator[Variation]:
    now = draft.plan.rope.theta
    thetas = {now * 10: "ten times", now / 10: "a tenth", DEFAULT_THETA: "the default"}
    target = draft.weights.target
    if target is not None:
        thetas[rope_of(target.facts.text_config).theta(reads_new=True)] = "the target's"
    for theta, words in thetas.items():
        if theta == now:
            continue
        yield Variation(
            f"theta {theta:g} ({words})",
            f"rotates with theta {theta:g}, not {now:g}",
            f"with rotary theta {theta:g}, not {now:g}",
            f'set "rope_theta": {theta:g} in the draft\'s config.json, and the same in '
            '"rope_parameters" or "rope_scaling" where one of these names a theta',
            {"theta": theta},
        )
    if draft.plan.rope.kind != "default":
        yield Variation(
            "no rotary scaling",
            "rotates without the config's scaling",
            "without the rotary scaling of its config",
            'remove "rope_scaling" (of "rope_parameters" all but theta) from the draft\'s config',
            {"scaling": None},
        )


def _vocabulary(draft: ReferenceDraft) -> Iterator[Variation]:
    plan, stored = draft.plan, draft.weights.stored
    if "d2t" in stored:
        yield Variation(
            "map read as target ids",
            "takes the values of d2t for target ids, not for offsets",
            "with target ids in d2t, and SGLang reads offsets",
            "store d2t as offsets: d2t - arange(len(d2t))",
            {"vocabulary_map": "direct"},
        )
        yield Variation(
            "map not used",
            "takes draft ids for target ids (d2t not loaded)",
            "without a vocabulary map",
            "export the draft without d2t",
            {"vocabulary_map": "none"},
        )
    if "embed_tokens.weight" in stored and _target_has(draft, EMBEDDINGS):
        other = "own" if plan.embedding == "target" else "target"
        whose = "the draft's own embedding" if other == "own" else "the target's embedding"
        yield Variation(
            f"embedding: {other}",
            f"uses {whose}",
            f"with {whose}",
            "SGLang replaces the draft's embedding by the target's: patch set_embed of the draft "
            "class to do nothing"
            if other == "own"
            else "remove embed_tokens.weight from the draft",
            {"embedding": other},
        )
    if plan.head == "own" and "d2t" not in stored and _target_has(draft, HEADS):
        yield Variation(
            "head of the target",
            "uses the target's head",
            "with the target's head",
            'set "draft_vocab_size": null in its config',
            {"head": "target"},
        )


def _trained(draft: ReferenceDraft) -> Iterator[Variation]:
    changes = draft.trained_changes
    if changes:
        words = ", ".join(f"{name} {value}" for name, value in changes.items())
        yield Variation(
            TRAINED,
            f"runs it with {words}",
            f"with {words}, which SGLang does not read",
            "run sglang-eagle3-probe doctor: its findings say for each of these what to do",
            changes,
        )


def _target_has(draft: ReferenceDraft, names: tuple[str, ...]) -> bool:
    target = draft.weights.target
    return target is not None and any(name in target for name in names)
