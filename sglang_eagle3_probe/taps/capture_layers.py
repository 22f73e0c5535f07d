"""Every boundary of the target, for requests that are captured with all layers.

Hooks on the decoder layers and the final norm copy the residual stream where it enters them. They
are there only when SGLANG_EAGLE3_PROBE_ALL_LAYERS asks for it; under CUDA graphs their copies are
part of every replay from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..device.boundary_rows import BoundaryRows
from ..host.module_hooks import TARGET_LAYERS, TARGET_NORM
from ..host.residual_stream import LayerArguments, at_attention, attention_of, entering
from ..host.session import Session
from .tensors import is_capturing


class LayersTap:
    """Hooks on one target model, and the rows they keep."""

    def __init__(self, session: Session, is_wanted: Callable[[], bool]) -> None:
        """
        Args:
            is_wanted: whether a running request or one to come needs all boundaries.
        """
        self._session = session
        self._site = session.guard.site("capture_layers")
        self._is_wanted = is_wanted
        self._layers = 0
        self._owed: int | None = None
        """Boundary that was not whole where it entered its layer."""
        self.rows: BoundaryRows | None = None
        """Made at the first eager forward."""

    @property
    def count(self) -> int:
        """Boundaries of the target, the embedding's and the last one included."""
        return self._layers + 1

    def watch(self, model: Any) -> None:
        """Attach to a target model whose layers SGLang has just set to capture."""
        inner = getattr(model, "model", None)
        layers = list(getattr(inner, "layers", None) or ())
        norm = getattr(inner, "norm", None)
        if self._layers or not layers or norm is None:
            return
        self._layers = len(layers)
        for boundary, layer in enumerate(layers):
            names = LayerArguments(layer.forward)
            TARGET_LAYERS.attach_before(layer, self._enters(boundary, names))
            attention = attention_of(layer)
            if attention is not None:
                names = LayerArguments(attention.forward)
                TARGET_LAYERS.attach_before(attention, self._prepared(boundary, names))
        TARGET_NORM.attach_before(norm, self._enters_norm)
        TARGET_NORM.attach(norm, self._left_norm)

    def _enters(self, boundary: int, names: LayerArguments) -> Callable[..., None]:
        def entered(_layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._site.enabled:
                with self._site as site:
                    site.check()
                    self._keep(
                        boundary,
                        names.get(args, kwargs, "hidden_states"),
                        names.get(args, kwargs, "residual"),
                        names.get(args, kwargs, "forward_batch"),
                    )

        return entered

    def _prepared(self, boundary: int, names: LayerArguments) -> Callable[..., None]:
        def prepared(_attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._owed == boundary and self._site.enabled:
                with self._site:
                    self._owed = None
                    hidden = names.get(args, kwargs, "hidden_states")
                    stream = at_attention(hidden, names.get(args, kwargs, "forward_batch"))
                    if stream is not None:
                        self._keep(boundary, stream, None, None)

        return prepared

    def _enters_norm(self, _norm: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._site.enabled:
            with self._site:
                residual = args[1] if len(args) > 1 else kwargs.get("residual")
                self._keep(self._layers, args[0] if args else kwargs.get("x"), residual, None)

    def _left_norm(self, _norm: Any, _inputs: Any, output: Any) -> None:
        if self._site.enabled:
            with self._site:
                normed = output[0] if isinstance(output, tuple) else output
                self._keep(self._layers + 1, normed, None, None)

    def _keep(self, boundary: int, hidden: Any, residual: Any, forward_batch: Any) -> None:
        if hidden is None or not (self._is_wanted() or self._is_captured(hidden)):
            return
        pair = entering(hidden, residual, forward_batch)
        if pair is None:
            self._owed = boundary
            return
        rows = self.rows
        if rows is None:
            if is_capturing(pair[0]):
                return
            rows = self.rows = self._made(pair[0])
        if boundary == 0:
            rows.begin()
        rows.keep(boundary, *pair)

    def _is_captured(self, hidden: Any) -> bool:
        """A graph is being captured: its replays shall keep the rows, whoever needs them then."""
        # A handle on an owed sum has no device; the rows it stands for were seen before.
        return is_capturing(hidden if self.rows is None else self.rows.norm)

    def _made(self, sample: Any) -> BoundaryRows:
        rows = BoundaryRows(
            self._session.settings.capture_buffer_mb * 1_000_000,
            self._layers + 1,
            int(sample.shape[-1]),
            sample.dtype,
            sample.device,
        )
        self._session.say(
            "capture: all %d boundaries of the first %d rows of each target forward, %.1f MB on %s",
            rows.count,
            rows.rows,
            rows.nbytes / 1e6,
            sample.device,
        )
        return rows
