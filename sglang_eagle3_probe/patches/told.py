"""How an inner model is told which boundaries to capture, and asked what it was told.

Most forwards look into ``layers_to_capture``; some ask a flag of each layer instead, which nothing
of SGLang ever takes back. Where the embedding output is put in by ``embedding_copy``, boundary 0
stays out of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..host import embedding_capture
from ..host.embedding_capture import EmbeddingCapture
from . import embedding_copy, patched_source


def inner_of(model: Any) -> Any:
    """The model inside the target that runs through the layers."""
    return model.model


def capture_of(model: Any) -> EmbeddingCapture | None:
    """What is known of the forward that captures, or ``None``."""
    return embedding_capture.of_forward(forward_of(inner_of(model)))


def forward_of(inner: Any) -> str:
    """``module:Class`` of the class that defines this model's forward."""
    owners = (cls for cls in type(inner).__mro__ if "forward" in cls.__dict__)
    owner = next(owners, type(inner))
    return f"{owner.__module__}:{owner.__name__}"


def tell(model: Any, boundaries: Sequence[int], *, by_copy: bool) -> None:
    """Have these boundaries captured and no others."""
    inner = inner_of(model)
    if patched_source.is_patched(model):
        patched_source.assign(model, boundaries)
    elif by_copy:
        embedding_copy.ask_for(inner, boundaries)
    else:
        inner.layers_to_capture = list(boundaries)
    _flag(model, inner.layers_to_capture)


def withdraw(model: Any) -> None:
    """Take back what was told before, so that the class's own setter starts afresh."""
    embedding_copy.forget(inner_of(model))
    _flag(model, ())


def told(model: Any) -> list[int] | None:
    """Boundaries in force, in the order of the list; ``None`` when nothing is captured."""
    if not getattr(model, "capture_aux_hidden_states", False):
        return None
    if patched_source.is_patched(model):
        return patched_source.captured(model)
    inner = inner_of(model)
    asked = embedding_copy.asked_of(inner)
    if asked is not None:
        return asked
    layers = getattr(inner, "layers_to_capture", None)
    return list(layers) if layers else None


def captured(model: Any) -> list[int] | None:
    """What a list the class's own setter was given comes to, ascending.

    A setter that flags ``layers[id]`` takes a negative id for a layer counted from the end.
    """
    listed = told(model)
    capture = capture_of(model)
    if listed is None or capture is None or not capture.layer_flag:
        return None if listed is None else sorted(listed)
    count = len(inner_of(model).layers)
    return sorted(b + count if b < 0 else b for b in listed)


def _flag(model: Any, boundaries: Sequence[int]) -> None:
    capture = capture_of(model)
    if capture is None or not capture.layer_flag:
        return
    for index, layer in enumerate(inner_of(model).layers):
        setattr(layer, capture.layer_flag, index in boundaries)
