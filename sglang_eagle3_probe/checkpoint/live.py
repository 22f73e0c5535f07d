"""What a running server itself shows of a target and a draft; it goes before what files predict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LiveFacts:
    """Facts in force. None: the server did not show it."""

    patches: frozenset[str] = frozenset()
    """Behaviour patches in force, the plugin's or those in SGLang's own files:
    ``embedding_capture``, ``capture_order``."""
    ids: tuple[int, ...] | None = None
    """The list of layer ids as given; None with ``boundaries`` set: SGLang's default holds."""
    ids_from: str = ""
    """``eagle_config``, ``variable`` or ``default``."""
    unit_was_set: bool = False
    """The user said in which unit the list is to be read."""
    boundaries: tuple[int, ...] | None = None
    """Captured boundaries in the order in which they reach the draft."""
    states_fit_fc: bool | None = None
    """The captured states are as many as the draft's ``fc`` takes."""
    map_in_force: bool | None = None
    """The worker maps draft ids to target ids."""
    not_taken: tuple[str, ...] | None = None
    """Names in the draft's checkpoint that the loader left."""
    not_filled: tuple[str, ...] | None = None
    """Parameters of the draft that kept their initial value."""

    @property
    def listed_boundaries(self) -> tuple[int, ...] | None:
        """The same boundaries in the order of the list that asks for them."""
        if self.boundaries is None or self.ids is None or len(set(self.ids)) != len(self.ids):
            return self.boundaries
        if len(self.ids) != len(self.boundaries):
            return self.boundaries
        by_id = dict(zip(sorted(self.ids), sorted(self.boundaries), strict=True))
        return tuple(by_id[i] for i in self.ids)
