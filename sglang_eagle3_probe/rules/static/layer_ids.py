"""What the layer-id rules share: the list in force and the boundaries SGLang makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import (
    Unserved,
    default_boundaries,
    embedding_by_probe,
    ids_to_write,
    order_by_probe,
    sglang_boundaries,
)
from sglang_eagle3_probe.rules.base import Seen
from sglang_eagle3_probe.rules.static.base import NESTED, eagle3_served, key, target_key

VARIABLE = "SGLANG_EAGLE3_PROBE_LAYER_IDS"
UNIT = f"{VARIABLE}_UNIT"


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


def probe_reads_list(situation: Situation) -> bool:
    """Whether the probe reads -1 and keeps the list's order, which it does on classes it knows."""
    return probe_on(situation) and order_by_probe(situation.target_class)


def probe_gives_embedding(situation: Situation) -> bool:
    """Whether boundary 0 comes out right because the probe sees to it."""
    live = situation.live
    if live is not None and "embedding_capture" in live.patches:
        return True
    return probe_on(situation) and embedding_by_probe(situation.target_class)


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
    if ids is not None and -1 in ids and probe_reads_list(situation):
        return InForce(ids, tuple(o + 1 for o in ids), layers)
    made = sglang_boundaries(situation.target_class, situation.release, ids, layers)
    return made if isinstance(made, Unserved) else InForce(ids, made, layers)


def in_force(situation: Situation) -> InForce | None:
    """The same, when it is known."""
    found = asked(situation)
    return found if isinstance(found, InForce) else None


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
