"""An SGLang that was patched with our source diffs: what it captures, and how to tell it.

Attributes of those diffs (patches/sglang), which name them as here. ``layers_to_capture`` is
SGLang's own. Both parts may be on at once: the source then does what it can, and the plugin only
what is asked of it besides (``SGLANG_EAGLE3_PROBE_LAYER_IDS`` and its unit).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .layer_plan import order_of

PLACES = "aux_hidden_state_places"
"""Of the ``ForCausalLM`` class, every release: arrival position per place of the list, or None."""
EMBEDDING = "captures_embedding_output"
"""Of the inner model's class, 0.5.9 to 0.5.13.post1: boundary 0 is captured, beside the loop's."""


def is_patched(model: Any) -> bool:
    """Whether the class of a target came with the source diffs."""
    return hasattr(type(model), PLACES)


def captures_embedding(model: Any) -> bool:
    """Whether the source diffs, all of them, let an old release's class capture boundary 0."""
    return is_patched(model) and hasattr(type(model.model), EMBEDDING)


def is_half_patched(model: Any) -> bool:
    """Whether an old release's class came with the first of the source diffs alone."""
    return not is_patched(model) and hasattr(type(model.model), EMBEDDING)


def keeps_order(model: Any) -> bool:
    """Whether the source itself brings the aux hidden states into the order of the list."""
    return getattr(model, PLACES, None) is not None


def captured(model: Any) -> list[int] | None:
    """Boundaries that a target captures, in the order of the list; ``None``: it captures none.

    Ascending where the list's order is not kept in the model: it was ascending then, or the
    concatenation will be.
    """
    if not getattr(model, "capture_aux_hidden_states", False):
        return None
    layers = list(getattr(model.model, "layers_to_capture", None) or ())
    beside_the_loop = getattr(model.model, EMBEDDING, False)
    if beside_the_loop:
        layers.append(0)
    places = getattr(model, PLACES, None)
    if places is not None:
        arriving = sorted(layers)
        return [arriving[place] for place in places]
    return (sorted(layers) if beside_the_loop or is_patched(model) else layers) or None


def assign(model: Any, wanted: Sequence[int]) -> None:
    """Let a target capture these boundaries, as its class would after its setter."""
    model.model.layers_to_capture = list(wanted)
    if captures_embedding(model):
        setattr(model.model, EMBEDDING, 0 in wanted)
        model.model.layers_to_capture = [boundary for boundary in wanted if boundary != 0]
    if is_patched(model):
        setattr(model, PLACES, order_of(wanted))
