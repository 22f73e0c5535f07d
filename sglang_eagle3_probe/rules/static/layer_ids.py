"""What the layer-id rules share: the list in force and the boundaries SGLang makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sglang_eagle3_probe.checkpoint.facts import Situation, block, int_list
from sglang_eagle3_probe.host.conventions import (
    Unserved,
    by_source_diffs,
    default_boundaries,
    embedding_by_probe,
    ids_to_write,
    order_by_probe,
    reach,
    sglang_boundaries,
)
from sglang_eagle3_probe.rules.base import Seen
from sglang_eagle3_probe.rules.static.base import (
    NESTED,
    TOP,
    eagle3_served,
    key,
    target_key,
)

Unit: TypeAlias = Literal["h", "o", "?"]
"""Boundaries, output ids, or either."""
ANGELSLIM = "aux_hidden_states_layer_ids"
VARIABLE = "SGLANG_EAGLE3_PROBE_LAYER_IDS"
UNIT = f"{VARIABLE}_UNIT"
MEASURE = (
    "let the draft tell: serve it with `--enable-probe --probe-all-layers 24`, send 24 requests, "
    "then `sglang-eagle3-probe infer-layers probe-logs --draft DRAFT --target TARGET`"
)
"""What decides which layers a draft was trained on, when its files do not."""


@dataclass(frozen=True)
class InForce:
    """Aux states that SGLang is asked for."""

    ids: tuple[int, ...] | None
    """The list in the draft's config; None: SGLang's default holds."""
    boundaries: tuple[int, ...]
    """In the order of the list."""
    num_layers: int

    @property
    def as_is(self) -> bool:
        """The list was taken for boundaries."""
        return self.ids is not None and self.ids == self.boundaries

    @property
    def list_text(self) -> str:
        return f"the default {list(self.boundaries)}" if self.ids is None else str(list(self.ids))


def probe_on(situation: Situation) -> bool:
    """Whether the server is started with the probe."""
    return bool(situation.argument("enable_probe"))


def has_source_diffs(situation: Situation) -> bool:
    """Whether ``patch-source`` can patch this class and release."""
    try:
        return by_source_diffs(situation.target_class, situation.release)
    except ValueError:
        return False


def source_reads_list(situation: Situation) -> bool:
    """Whether SGLang's own files read -1 and keep the list's order, as they were patched to."""
    return situation.source_patched and has_source_diffs(situation)


def reads_list(situation: Situation) -> bool:
    """Whether -1 is read and the list's order kept: by the probe, on classes that it knows, or by
    patched source."""
    by_probe = probe_on(situation) and order_by_probe(situation.target_class)
    return by_probe or source_reads_list(situation)


def gives_embedding(situation: Situation) -> bool:
    """Whether boundary 0 comes out right because the probe or patched source sees to it."""
    live = situation.live
    if live is not None and "embedding_capture" in live.patches:
        return True
    by_probe = probe_on(situation) and embedding_by_probe(situation.target_class)
    return by_probe or source_reads_list(situation)


def patched_serving(situation: Situation) -> str:
    """What to do for a list with -1, or in an order of its own, on a class that the probe knows."""
    other = (
        ", or patch SGLang's files with `sglang-eagle3-probe patch-source`"
        if has_source_diffs(situation)
        else ""
    )
    return f"start the server with `--enable-probe`{other}"


def reaching(situation: Situation, found: InForce) -> tuple[int, ...]:
    """Boundaries that reach the draft, in the order in which they are concatenated."""
    n = found.num_layers
    given = gives_embedding(situation)
    got = [
        h
        for h in dict.fromkeys(found.boundaries)
        if (h == 0 and given)
        or reach(situation.target_class, situation.release, h, n) == "captured"
    ]
    return tuple(got if reads_list(situation) else sorted(got))


def release_readable(situation: Situation) -> bool:
    try:
        sglang_boundaries("LlamaForCausalLM", situation.release, None, 8)
    except ValueError:
        return False
    return True


def asked(situation: Situation) -> InForce | Unserved | None:
    """The boundaries in force; None when nothing is captured or the target's depth is unknown."""
    layers = situation.num_layers
    if layers is None or not eagle3_served(situation) or not situation.uses_aux:
        return None
    live = situation.live
    if live is not None and live.listed_boundaries is not None:
        return InForce(live.ids, live.listed_boundaries, layers)
    if not release_readable(situation):
        return Unserved(f"SGLang {situation.release!r} is no release that was read", certain=False)
    ids = situation.nested_ids
    if ids is not None and not ids:
        ids = None
    if ids is not None and -1 in ids and reads_list(situation):
        return InForce(ids, tuple(o + 1 for o in ids), layers)
    made = sglang_boundaries(situation.target_class, situation.release, ids, layers)
    return made if isinstance(made, Unserved) else InForce(ids, made, layers)


def asked_of_files(situation: Situation) -> InForce | None:
    """Boundaries in force, for rules that guess from configs which layers a draft was trained on.

    None as well where the trainer's notes say it: then E3P124 decides, and a guess is noise.
    """
    return None if situation.draft.trained_output_ids is not None else in_force(situation)


def in_force(situation: Situation) -> InForce | None:
    """The same, when it is known."""
    found = asked(situation)
    return found if isinstance(found, InForce) else None


def lists_elsewhere(situation: Situation) -> list[tuple[str, tuple[int, ...], Unit]]:
    """Lists of layer ids where SGLang does not look: place, list and the unit it is in."""
    config = situation.draft.config
    speculators = "speculators_model_type" in config or "speculators_config" in config
    places: tuple[tuple[str, object, Unit], ...] = (
        (TOP, config.get(TOP), "h" if speculators else "?"),
        (ANGELSLIM, config.get(ANGELSLIM), "o"),
        ("eagle_config.layer_ids", block(config, "eagle_config").get("layer_ids"), "h"),
    )
    lists = ((place, int_list(value), unit) for place, value, unit in places)
    return [(place, ids, unit) for place, ids, unit in lists if ids]


def standard(situation: Situation, layers: int) -> tuple[int, ...]:
    """The default boundaries of this target class."""
    return default_boundaries(situation.target_class, layers)


def evidence(situation: Situation, found: InForce) -> list[Seen]:
    """List, target and boundaries."""
    live = situation.live
    by_variable = live is not None and live.ids_from == "variable"
    return [
        Seen(
            "layer ids",
            list(found.ids) if found.ids is not None else None,
            VARIABLE if by_variable else key(situation, NESTED),
        ),
        Seen("layers", found.num_layers, target_key(situation, "num_hidden_layers")),
        Seen(
            "boundaries in force",
            list(found.boundaries),
            f"{situation.target_class} of SGLang {situation.release}",
        ),
    ]


def write_text(ids: Sequence[int]) -> str:
    """The config edit that names these ids."""
    return (
        'set `"eagle_config": {"eagle_aux_hidden_state_layer_ids": '
        f"{list(ids)}}}` in the draft's config.json"
    )


def fix_for(situation: Situation, boundaries: Sequence[int], layers: int) -> str:
    """The config edit that makes this class and release capture these boundaries."""
    made = ids_to_write(situation.target_class, situation.release, boundaries, layers)
    if isinstance(made, Unserved):
        return (
            f"start the server with `--enable-probe` and {UNIT}=boundary, with "
            f"{VARIABLE}={','.join(str(h) for h in boundaries)}"
        )
    return write_text(made)
