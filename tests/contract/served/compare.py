"""Holds the doctor's statements against a release's answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.reader import read_checkpoint
from sglang_eagle3_probe.checkpoint.rope import rope_of
from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.rules.base import Finding
from sglang_eagle3_probe.rules.static import draft_module, layer_ids, spec_arguments
from sglang_eagle3_probe.rules.static.base import since
from sglang_eagle3_probe.rules.static.registry import judge

STACKS = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}
STOPS = frozenset({"E3P213", "E3P316", "E3P318", "E3P322", "E3P328", "E3P415", "E3P511"})
"""Errors that say of a draft: it is not built, or its weights do not fit."""
LOST_OR_STOPS = frozenset({"E3P112", "E3P113", "E3P115", "E3P116", "E3P117", "E3P119"})


@dataclass(frozen=True)
class Row:
    """One statement about one case in one release."""

    case: str
    release: str
    about: str
    doctor: str
    sglang: str
    agree: bool


def codes(situation: Situation, severity: str | None = None) -> list[str]:
    """Codes of findings (all but notes, or of one severity) and of what is undecided."""
    found = []
    for result in judge(situation):
        level = result.severity if isinstance(result, Finding) else "unknown"
        if level == severity or (severity is None and level != "note"):
            found.append(result.code)
    return sorted(set(found))


def with_folders(
    target: Path, draft: Path, release: str, arguments: Mapping[str, Any]
) -> Situation:
    return Situation(
        read_checkpoint(str(target)), read_checkpoint(str(draft)), release, dict(arguments)
    )


# -- draft weights -------------------------------------------------------------------------------


def stored(name: str, *, mla: bool) -> str:
    """A canonical name's parameter, as both sides are compared."""
    for stack, parts in STACKS.items():
        if mla and stack == "qkv_proj":
            continue
        for part in parts:
            name = name.replace(f".{part}.", f".{stack}.")
    return name


def parameter(name: str) -> str:
    """A module's parameter in canonical spelling."""
    return re.sub(r"\bmidlayer\.", "layers.0.", name.removeprefix("model."))


def weights(case: str, situation: Situation, answer: Mapping[str, Any]) -> list[Row]:
    """Unread tensors and parameters nobody fills; or that the class cannot be built at all."""
    if "raised" in answer:
        return [start(case, situation, answer)]
    known = draft_module.parameters(situation)
    taken, left = draft_module.split(situation)
    assert known is not None, case
    mla = "q_lora_rank" in situation.draft.config
    matrices, norms = draft_module.missing(situation)
    mine = {stored(name, mla=mla) for name in (*matrices, *norms)}
    open_slots = {stored(name, mla=mla) for name in known.optional - taken.keys()}
    real = {parameter(name) for name in answer["missing"]}
    spoken = codes(situation)
    unread = Row(
        case, situation.release, "unread weights", listed(left), listed(answer["unread"]),
        list(answer["unread"]) == left and (not left or bool(spoken)),
    )  # fmt: skip
    missing = Row(
        case, situation.release, "unfilled parameters", listed(mine), listed(real - open_slots),
        mine == real - open_slots and (not mine or bool(spoken)),
    )  # fmt: skip
    return [unread, missing]


def start(case: str, situation: Situation, answer: Mapping[str, Any]) -> Row:
    """The draft cannot be configured or built: the doctor must have said that it stops."""
    errors = [code for code in codes(situation, "error") if code in STOPS]
    what = f"{answer['raised']}: {answer['text'][:90]}"
    return Row(case, situation.release, "start", ", ".join(errors) or "starts", what, bool(errors))


def listed(names: Sequence[str] | set[str] | frozenset[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more if ordered else "none"


# -- boundaries ----------------------------------------------------------------------------------


def boundaries(case: str, situation: Situation, answer: Mapping[str, Any]) -> list[Row]:
    """The list in force, and what of it a forward captures."""
    release, target, layers = situation.release, situation.target_class, situation.num_layers
    assert layers is not None
    asked = layer_ids.asked(situation)
    errors = codes(situation, "error")
    if asked is None:
        said = "no aux states" if not situation.uses_aux else "not judged"
        real = "no aux states" if answer.get("uses_aux") is False else str(answer)[:90]
        return [Row(case, release, "boundaries", said, real, said == real)]
    if isinstance(asked, conventions.Unserved):
        real = "no setter" if answer.get("no_setter") else str(answer)[:90]
        return [Row(case, release, "boundaries", asked.why[:90], real, real == "no setter")]
    wanted = list(asked.boundaries)
    reaches = {h: conventions.reach(target, release, h, layers) for h in wanted}
    if "raised" in answer:
        real = f"{answer['raised']}: {answer['text'][:60]}"
        said = f"{wanted}, errors {errors}"
        stops = "crash" in reaches.values() or bool(STOPS & set(errors))
        return [Row(case, release, "boundaries", said, real, stops)]
    rows = [
        Row(case, release, "boundaries", str(wanted), str(answer["layers_to_capture"]),
            sorted(wanted) == sorted(answer["layers_to_capture"]))
    ]  # fmt: skip
    forward = answer["forward"]
    faults = conventions.known_faults(target, release)
    # On a CPU nothing is overwritten; contract/families imitates the norm of a GPU.
    wrong = [f for f in faults if not f.needs and f.boundary is None]
    arrives = list(conventions.captured(target, release, wanted, layers))
    if "raised" in forward:
        real = f"{forward['raised']}: {forward['text'][:60]}"
        said = f"{arrives} of {wanted}, errors {errors}"
        agree = arrives != sorted(wanted) and bool(LOST_OR_STOPS & set(errors))
    elif wrong:
        real, said = str(forward["boundaries"]), f"not the stream ({', '.join(errors)})"
        agree = forward["boundaries"] is None or None in forward["boundaries"]
    else:
        real, said = str(forward["boundaries"]), str(arrives)
        agree = forward["boundaries"] == arrives
        agree = agree and (arrives == sorted(wanted) or bool(LOST_OR_STOPS & set(errors)))
    return [*rows, Row(case, release, "captured by a forward", said, real, agree)]


# -- overrides -----------------------------------------------------------------------------------


def overrides(text: str, situation: Situation, answer: Mapping[str, Any]) -> list[Row]:
    """Layers and theta of both sides under ``--json-model-override-args``."""
    spoken = [code for code in codes(situation) if code == "E3P615"]
    if "raised" in answer:
        errors = [code for code in codes(situation, "error") if code == "E3P615"]
        said = ", ".join(errors) or "starts"
        return [Row(text, situation.release, "overrides", said, answer["raised"], bool(errors))]
    reads_new = since(situation, "0.5.10")
    mine = {
        "target": {
            "layers": situation.num_layers,
            "theta": rope_of(situation.target.config).theta(reads_new=reads_new),
        },
        "draft": {
            "layers": draft_module.num_layers(situation),
            "theta": rope_of(situation.draft.config).theta(reads_new=reads_new),
        },
    }
    changed = text != "{}"
    agree = mine == answer and bool(spoken) == changed
    return [Row(text, situation.release, "overrides", shown(mine), shown(answer), agree)]


def shown(sides: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{side}: {found['layers']} layers, theta {found['theta']:g}"
        for side, found in sides.items()
    )


# -- arguments -----------------------------------------------------------------------------------


def arguments(situation: Situation, answer: Mapping[str, Any]) -> list[Row]:
    """Steps, topk and draft tokens in force; or that the server does not start."""
    asked = spec_arguments.given(situation)
    short = ", ".join(
        f"{key.removeprefix('speculative_')}={value}" for key, value in situation.arguments.items()
    )
    case = f"{situation.target_class}: {short}"
    errors = [c for c in codes(situation, "error") if c.startswith("E3P6")]
    if "raised" in answer:
        real = answer["raised"]
        return [Row(case, situation.release, "arguments", f"{errors}", real, bool(errors))]
    force = asked.in_force(situation.target_class)
    said = [force.steps, force.topk, force.tokens]
    real_values = [answer["num_steps"], answer["eagle_topk"], answer["num_draft_tokens"]]
    warned = [c for c in codes(situation) if c == "E3P610"]
    changed = (
        asked.steps is not None and asked.tokens is not None and asked.tokens != real_values[2]
    )
    bypassed = "E3P210" in codes(situation, "error")
    # What ServerArgs leaves unset is an error all the same: building the tree takes one from it.
    unset = "E3P611" in errors and None in real_values
    agree = said == real_values and bool(errors) == unset and bool(warned) == changed
    agree = agree and answer["asks_for_aux"] != bypassed
    bare = {True: "", False: ", no aux states"}
    return [
        Row(
            case,
            situation.release,
            "arguments",
            f"{said}{bare[not bypassed]} {warned or ''}".strip(),
            f"{real_values}{bare[answer['asks_for_aux']]}",
            agree,
        )
    ]
