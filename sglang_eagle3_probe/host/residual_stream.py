"""The residual stream that enters a decoder layer of a target, read off the layer's arguments.

0.5.9 to 0.5.20: ``layer(..., hidden_states, ..., residual)``; the stream is their sum, and before
layer 0, where ``residual`` is ``None``, it is ``hidden_states``. 0.5.21 and later: the residual is
kept in ``forward_batch.residual_stream`` (``layers/layer_boundary/residual/stream.py``), and the
argument may be a handle on a sum over ranks that is still owed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

OWED_MARK = "_sglang_needs_allreduce_fusion"
"""Attribute of a tensor whose sum over ranks is left to the next layer's norm (to 0.5.20)."""


class LayerArguments:
    """Finds arguments of a layer's ``forward`` by name, however they were passed."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        names = list(inspect.signature(forward).parameters)
        self._places = {name: place for place, name in enumerate(names)}

    def get(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> Any:
        """The argument, or ``None``."""
        if name in kwargs:
            return kwargs[name]
        place = self._places.get(name)
        return args[place] if place is not None and place < len(args) else None


def entering(hidden: Any, residual: Any, forward_batch: Any) -> tuple[Any, Any] | None:
    """Two tensors whose sum is the residual stream (the second may be ``None``).

    Neither is to be changed. ``None`` where the stream is not whole on this rank yet. Completing
    the sum here would be a collective of our own: one rank without it, and all hang.
    """
    stream = getattr(forward_batch, "residual_stream", None)
    if stream is None:
        if getattr(hidden, OWED_MARK, False):
            return None
        return hidden, residual
    pending = stream.pending
    if pending is None:
        return hidden, None
    if pending.owed is None and _adds_plainly(pending.update):
        return pending.value, stream.residual
    return None


def _adds_plainly(update: Any) -> bool:
    """Whether the stream is the sum of the two: ``adds_plainly`` in 0.5.21, then renamed."""
    return bool(getattr(update, "is_plain_add", getattr(update, "adds_plainly", False)))


def at_attention(hidden: Any, forward_batch: Any) -> Any:
    """The stream that entered the layer, once the layer has prepared its attention's input.

    0.5.21 and later: SGLang has summed and written it by then, and changes it in place only after
    the attention. ``None`` where it cannot be had, or is spread over ranks.

    Args:
        hidden: what the attention gets, [rows, width].
    """
    stream = getattr(forward_batch, "residual_stream", None)
    if stream is None or stream.pending is not None:
        return None
    residual = stream.residual
    if residual is None:
        return None
    return residual if residual.shape == getattr(hidden, "shape", None) else None


def attention_of(layer: Any) -> Any:
    """The attention module of a decoder layer, whatever its class calls it."""
    for name in ("self_attn", "attention", "linear_attn", "attn"):
        found = getattr(layer, name, None)
        if found is not None:
            return found
    return None
