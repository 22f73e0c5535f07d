"""The embedding output as boundary 0 on classes whose own forward cannot capture it.

Around the forward of the inner model, the one that runs through the layers: the embedding is
computed there instead of one call deeper (so not once more), handed on as ``input_embeds``, and a
copy of it goes to the front of the captured list. A copy, because the first layer's fused add-norm
writes the residual stream into that very tensor. Multi-modal targets pass ``input_embeds`` anyway,
with the image positions merged in; that is then boundary 0, and ids are never embedded again.

Which classes and releases: ``host.embedding_capture``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..host.call import Binder
from ..host.wrapping import SeamError

BOUNDARIES = "eagle3_probe_boundaries"
"""Attribute of an inner model that gets the copy: all its boundaries, in the order of the list."""
_MARK = "inserts_embedding_copy"


class EmbeddingCopy:
    """Stands around ``<inner model>.forward``; does nothing on models that did not ask.

    Plain Python that torch.compile traces whole: SGLang compiles this very function with
    ``fullgraph=True`` for its piecewise prefill graphs (0.5.10 to 0.5.22,
    ``compilation/compile.py:install_torch_compiled``), and calls it unbound there. It is captured
    into every other graph like the rest of the forward.
    """

    name = "embedding_copy"

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the same signature.

        Raises:
            SeamError: ``function`` does not take ``input_ids`` and ``input_embeds``.
        """
        positions = Binder.of(function, has_self=True).positions
        for needed in ("input_ids", "input_embeds"):
            if needed not in positions:
                raise SeamError(f"forward has no parameter {needed}")
        ids_at, embeds_at = positions["input_ids"], positions["input_embeds"]

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self, BOUNDARIES, None) is None:
                return function(self, *args, **kwargs)
            is_positional = len(args) > embeds_at
            embeds = args[embeds_at] if is_positional else kwargs.get("input_embeds")
            if embeds is None:
                ids = args[ids_at] if len(args) > ids_at else kwargs["input_ids"]
                embeds = self.embed_tokens(ids)
                if is_positional:
                    args = (*args[:embeds_at], embeds, *args[embeds_at + 1 :])
                else:
                    kwargs = {**kwargs, "input_embeds": embeds}
            copy = embeds.clone()
            return _with_first(copy, function(self, *args, **kwargs))

        setattr(forward, _MARK, True)
        return forward


def is_in_place(inner: Any) -> bool:
    """Whether calls of this inner model come through :class:`EmbeddingCopy`."""
    return bool(getattr(type(inner).forward, _MARK, False))


def ask_for(inner: Any, boundaries: Sequence[int]) -> None:
    """Have this inner model capture these boundaries, of which one is 0."""
    inner.layers_to_capture = [b for b in boundaries if b != 0]
    setattr(inner, BOUNDARIES, tuple(boundaries))


def asked_of(inner: Any) -> list[int] | None:
    """What :func:`ask_for` was given, or ``None``."""
    boundaries = getattr(inner, BOUNDARIES, None)
    return None if boundaries is None else list(boundaries)


def forget(inner: Any) -> None:
    """Undo :func:`ask_for`, but for ``layers_to_capture``."""
    if getattr(inner, BOUNDARIES, None) is not None:
        setattr(inner, BOUNDARIES, None)


def _with_first(copy: Any, result: Any) -> Any:
    """Put the copy first in ``(hidden states, captured)``, or after hidden states alone."""
    if isinstance(result, tuple):
        hidden_states, captured = result
        return hidden_states, [copy, *captured]
    return result, [copy]
