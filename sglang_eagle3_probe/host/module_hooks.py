"""Modules of loaded models that the probe hooks by torch's own means: one row each, with a why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModuleHook:
    """A forward hook on one module of a loaded model, by torch's own public means.

    Args:
        name: what the probe calls it.
        module: which module, in words.
        why: what we need there.
    """

    name: str
    module: str
    why: str

    def attach(self, module: Any, hook: Callable[[Any, Any, Any], None]) -> None:
        """Call ``hook(module, inputs, output)`` after each forward of the module. It must return
        ``None``, which leaves the output as it is, and must not raise.

        A forward that torch.compile traced runs without it.
        """
        from torch.compiler import is_compiling

        def unless_compiled(inner: Any, inputs: Any, output: Any) -> None:
            # Dynamo cannot trace a hook of ours, and a forward that must compile as one piece
            # (SGLang's piecewise prefill graphs, 0.5.12) would take the server down with it. It
            # knows the answer to this question, so that nothing of the hook is traced.
            if not is_compiling():
                hook(inner, inputs, output)

        module.register_forward_hook(unless_compiled)

    def attach_before(
        self, module: Any, hook: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
    ) -> None:
        """Call ``hook(module, args, kwargs)`` before each forward; otherwise as ``attach``."""
        from torch.compiler import is_compiling

        def unless_compiled(inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not is_compiling():
                hook(inner, args, kwargs)

        module.register_forward_pre_hook(unless_compiled, with_kwargs=True)


DRAFT_FC = ModuleHook(
    name="draft_fc",
    module="fc of the draft's inner model",
    why="whether fc ran is seen, not inferred from widths; level stats also taps what it puts out",
)
TARGET_EMBEDDING = ModuleHook(
    name="target_embedding",
    module="embed_tokens of the target's inner model",
    why="level stats compares slots with the embedding output, before layer 0 may overwrite it",
)
TARGET_LAYERS = ModuleHook(
    name="target_layers",
    module="every decoder layer of the target's inner model",
    why="level capture with all layers: the residual stream where it enters a layer",
)
TARGET_NORM = ModuleHook(
    name="target_norm",
    module="final norm of the target's inner model",
    why="level capture with all layers: the last boundary, and what leaves the norm",
)
