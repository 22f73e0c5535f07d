"""How to make SGLang hand a draft certain boundaries: the list to write, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_eagle3_probe.host import conventions
from sglang_eagle3_probe.host.conventions import Unserved

KEY = "eagle_aux_hidden_state_layer_ids"
VARIABLE = "SGLANG_EAGLE3_PROBE_LAYER_IDS"
"""Named in settings.py."""


@dataclass(frozen=True)
class Serving:
    """What serves these boundaries in this order.

    Attributes:
        ids: the list for ``eagle_config``; None: no list does, see ``notes``.
        needs_probe: SGLang alone does not hand these boundaries over in this order.
        notes: reasons and other ways, in words.
    """

    boundaries: tuple[int, ...]
    ids: tuple[int, ...] | None
    needs_probe: bool
    notes: tuple[str, ...]

    @property
    def edit(self) -> str | None:
        """For the draft's config.json."""
        if self.ids is None:
            return None
        return f'"eagle_config": {{"{KEY}": {list(self.ids)}}}'


def serving(
    boundaries: Sequence[int], target_class: str | None, release: str, layers: int
) -> Serving:
    """The list for one target class and release, from the tables of ``host.conventions``.

    Args:
        boundaries: in the order of the draft's ``fc``.
        layers: N of the target.
    """
    wanted = tuple(boundaries)
    notes: list[str] = []
    made = conventions.ids_to_write(target_class, release, wanted, layers)
    if isinstance(made, Unserved):
        notes.append(made.why)
        if not made.certain:
            return Serving(wanted, None, False, tuple(notes))
        notes.append(
            f"--enable-probe with {VARIABLE}={','.join(map(str, wanted))} and {VARIABLE}_UNIT="
            "boundary asks for them whatever the class reads"
        )
        return Serving(wanted, None, True, tuple(notes))
    needs_probe = False
    for h in sorted(set(wanted)):
        reach = conventions.reach(target_class, release, h, layers)
        if reach != "captured":
            needs_probe = True
            notes.append(
                f"boundary {h} is not captured by {target_class} of SGLang {release} ({reach})"
            )
    if list(wanted) != sorted(wanted):
        needs_probe = True
        order = [sorted(wanted).index(h) for h in wanted]
        blocks = [wanted.index(h) for h in sorted(wanted)]
        notes.append(
            "SGLang concatenates in ascending order, the draft wants slots "
            f"{order} of that. --enable-probe keeps the order of the list; without it, put the "
            f"column blocks of fc.weight in the order {blocks} and list the layers ascending"
        )
    ids_o = conventions.output_ids(wanted)
    as_output = conventions.sglang_boundaries(target_class, release, ids_o, layers)
    if 0 in wanted and as_output != wanted:
        notes.append(
            f"written as output ids, {list(ids_o)}, it is understood with --enable-probe only: "
            f"{target_class} of SGLang {release} takes such a list as it is"
        )
    return Serving(wanted, made, needs_probe, tuple(notes))
