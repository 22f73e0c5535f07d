"""``doctor --explain-ids``: the draft's target layers in every unit, and what is in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.checkpoint.intent import WORDS, Intent
from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.host.conventions import Unserved
from sglang_eagle3_probe.report.lines import Line, blank, fields, table, wrapped
from sglang_eagle3_probe.rules.static.layer_ids import (
    InForce,
    asked,
    reaching,
    reads_list,
    source_reads_list,
)

HEADER = ("slot", "output id o", "boundary h", "HF index", "for SGLang", "for vLLM", "in force")
WRITE = "eagle_config.eagle_aux_hidden_state_layer_ids"


def in_force(situation: Situation) -> tuple[tuple[int, ...], str] | Unserved:
    """Boundaries that reach the draft as things stand, and how SGLang came to them."""
    layers = situation.num_layers
    if layers is None:
        return Unserved("the target's config does not say how many layers it has", certain=False)
    if situation.algorithm not in (None, "EAGLE3"):
        return Unserved(
            f"nothing: aux hidden states are captured for EAGLE3 only, not for "
            f"{situation.algorithm}",
            certain=True,
        )
    if not situation.uses_aux:
        return Unserved(
            "use_aux_hidden_state is false: the draft gets the final state, after the norm",
            certain=True,
        )
    found = asked(situation)
    if found is None or isinstance(found, Unserved):
        return found or Unserved("not known", certain=False)
    ids, made = found.ids, found.boundaries
    if ids is not None and -1 in ids and reads_list(situation):
        by = "SGLang's patched source" if source_reads_list(situation) else "the probe"
        how = f"{list(ids)} read as output ids by {by}, which also keeps their order"
    elif ids is None:
        how = f"no list under {WRITE}: the class's default"
    elif tuple(made) == ids:
        how = f"{list(ids)} taken as boundaries, as they are"
    else:
        how = f"{list(ids)} taken as output ids, plus one"
    return made, how


def _captured(situation: Situation, made: Sequence[int]) -> tuple[int, ...]:
    return reaching(situation, InForce(None, tuple(made), situation.num_layers or 0))


def as_object(situation: Situation, intent: Intent) -> dict[str, Any]:
    """The same for --json."""
    now = in_force(situation)
    layers = situation.num_layers
    return {
        "num_layers": layers,
        "key": intent.key,
        "ids": intent.ids,
        "unit": intent.unit,
        "why": intent.why,
        "in_force": {
            "boundaries": None if isinstance(now, Unserved) else now[0],
            "captured": None if isinstance(now, Unserved) else _captured(situation, now[0]),
            "why": now.why if isinstance(now, Unserved) else now[1],
        },
        "readings": [
            {
                "unit": unit,
                "output_ids": conventions.output_ids(boundaries),
                "boundaries": boundaries,
                "hf_hidden_states": boundaries,
                "sglang": _list(_to_write(situation, boundaries)),
                "vllm": boundaries,
                "tensorrt_llm": conventions.tensorrt_llm_ids(boundaries),
            }
            for unit, boundaries in intent.readings
        ],
    }


def _to_write(situation: Situation, boundaries: Sequence[int]) -> tuple[int, ...] | Unserved:
    if 0 in boundaries and reads_list(situation):
        return conventions.output_ids(boundaries)
    return conventions.ids_to_write(
        situation.target_class, situation.release, boundaries, situation.num_layers or 0
    )


def _list(found: tuple[int, ...] | Unserved) -> tuple[int, ...] | None:
    return None if isinstance(found, Unserved) else found


def as_lines(situation: Situation, intent: Intent, width: int) -> list[Line]:
    """A table for each unit the list may be in, and what is in force."""
    layers = situation.num_layers
    lines = [Line([("Layer ids", "bold")])]
    now = in_force(situation)
    rows = [
        ("list", f"{list(intent.ids)} at {intent.key}" if intent.ids else "none in the config"),
        ("unit", f"{WORDS[intent.unit]} ({intent.why})"),
    ]
    if isinstance(now, Unserved):
        rows.append(("in force", now.why))
    else:
        got = _captured(situation, now[0])
        lost = [h for h in dict.fromkeys(now[0]) if h not in got]
        rows.append(("in force", f"boundaries {list(got)}: {now[1]}"))
        if lost and layers is not None:
            what = [
                f"{h} ({conventions.reach(situation.target_class, situation.release, h, layers)})"
                for h in lost
            ]
            rows.append(("not captured", "boundaries " + ", ".join(what)))
    lines += fields([(f"  {name}", value) for name, value in rows], width)
    for unit, boundaries in intent.readings:
        lines.append(blank())
        if len(intent.readings) > 1:
            lines += wrapped("  ", f"If the list holds {WORDS[unit]}:", width, "", "bold")
        lines += _table(situation, boundaries, now, width)
    if not intent.readings:
        lines += wrapped("  ", "Without the number of layers there is nothing to convert.", width)
    if len(intent.readings) > 1:
        lines += wrapped(
            "  ",
            "Which one is right the training recipe says, or the draft itself: "
            "sglang-eagle3-probe infer-layers CAPTURE --draft DIR, on requests captured with "
            "--probe-all-layers (docs/infer_layers.md).",
            width,
        )
    return lines


def _table(
    situation: Situation,
    boundaries: Sequence[int],
    now: tuple[tuple[int, ...], str] | Unserved,
    width: int,
) -> list[Line]:
    layers = situation.num_layers
    write = _to_write(situation, boundaries)
    got = () if isinstance(now, Unserved) else _captured(situation, now[0])
    rows = []
    for slot, h in enumerate(boundaries):
        name = " (embedding)" if h == 0 else " (last)" if layers and h == layers else ""
        force = "-" if isinstance(now, Unserved) or slot >= len(got) else str(got[slot])
        rows.append(
            (
                str(slot),
                str(h - 1),
                f"{h}{name}",
                f"{h}*" if layers and h == layers else str(h) if h >= 0 else "-",
                "-" if isinstance(write, Unserved) else str(write[slot]),
                str(h),
                force + (" !" if force not in ("-", str(h)) else ""),
            )
        )
    lines = [Line([("  ", ""), *line.parts]) for line in table(HEADER, rows)]
    if any("*" in row[3] for row in rows):
        lines += wrapped(
            "  * ", "Transformers overwrites the last entry with the state after the norm.", width
        )
    if isinstance(write, Unserved):
        return lines + wrapped("  SGLang: ", write.why, width, "bold")
    lines += wrapped("  SGLang: ", f'"eagle_config": {{"{WRITE[13:]}": {list(write)}}}', width)
    lines += wrapped("  vLLM:   ", f'"{WRITE[13:]}": {list(boundaries)}', width)
    return lines + wrapped("  TensorRT-LLM: ", _for_tensorrt_llm(boundaries), width)


def _for_tensorrt_llm(boundaries: Sequence[int]) -> str:
    ids = conventions.tensorrt_llm_ids(boundaries)
    if ids is None:
        return "cannot capture the embedding; -1 is the final state there"
    return f"eagle3_layers_to_capture: {list(ids)}, an argument and not a key of the config"
