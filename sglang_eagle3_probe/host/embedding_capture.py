"""What the forwards that capture can capture at both ends of the stack, by release. Pure data.

Read from each model file, releases 0.5.9 to 0.5.23. One row per forward of an inner model (the one
that runs through the layers), because that is what captures; several target classes may share it.
Where it captures boundary 0, the embedding output, by itself, it needs nothing but the number.
Where it does not (``residual`` is ``None`` before layer 0, or the captured tensor is overwritten in
place later on), a copy of the embedding output can be put in front of the captured list:
``patches.embedding_copy``. A release in neither range, and a forward without a row, is refused at
start-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from .versions import Releases

_MODELS = "sglang.srt.models"
_OVERWRITTEN = "later layers write into the tensor that it keeps as the embedding output"
_NO_RESIDUAL = "fails at the first forward with a TypeError: there is no residual before layer 0"


@dataclass(frozen=True)
class EmbeddingCapture:
    """One forward that captures aux hidden states.

    Args:
        inner: ``module:Class`` that defines the forward. It takes ``input_ids`` and
            ``input_embeds``, embeds with its own ``embed_tokens`` when the latter is ``None``, and
            returns ``(hidden states, list of captured states)`` or, with none captured, the hidden
            states alone.
        by_itself: releases in which boundary 0 comes out right.
        by_copy: releases in which the copy is put in.
        overwritten: releases of those in which SGLang alone captures the embedding output itself,
            into which the layers then write; in the others there is no residual yet.
        last: releases in which boundary N, the stream before the final norm, is captured.
        layer_flag: attribute of each layer that the forward asks instead of the list, or "".
    """

    inner: str
    by_itself: Releases | None = None
    by_copy: Releases | None = None
    overwritten: Releases | None = None
    last: Releases | None = None
    layer_flag: str = ""

    def way(self, release: str) -> str | None:
        """``itself``, ``copy`` or ``None``."""
        if self.by_itself is not None and self.by_itself.contains(release):
            return "itself"
        if self.by_copy is not None and self.by_copy.contains(release):
            return "copy"
        return None

    def without_copy(self, release: str) -> str:
        """What SGLang alone does with boundary 0 where it needs the copy, as a sentence part."""
        if self.way(release) != "copy":
            return ""
        if self.overwritten is not None and self.overwritten.contains(release):
            return _OVERWRITTEN
        return _NO_RESIDUAL

    def reaches_last(self, release: str) -> bool:
        """Whether boundary N is captured."""
        return self.last is not None and self.last.contains(release)

    def proved(self) -> str:
        """The releases of either way, for messages."""
        ranges = [str(r) for r in (self.by_copy, self.by_itself) if r is not None]
        return f"SGLang {' and '.join(ranges)}" if ranges else "no release so far"


def _row(
    module: str,
    inner: str,
    *,
    by_itself: Releases | None = None,
    by_copy: Releases | None = None,
    overwritten: Releases | None = None,
    last: Releases | None = None,
    layer_flag: str = "",
) -> EmbeddingCapture:
    return EmbeddingCapture(
        inner=f"{_MODELS}.{module}:{inner}",
        by_itself=by_itself,
        by_copy=by_copy,
        overwritten=overwritten,
        last=last,
        layer_flag=layer_flag,
    )


EMBEDDING_CAPTURE: tuple[EmbeddingCapture, ...] = (
    _row(
        "deepseek_v2",
        "DeepseekV2Model",
        by_copy=Releases("0.5.9", "0.5.13.post1"),
        by_itself=Releases("0.5.14"),
    ),
    _row(
        "llama",
        "LlamaModel",
        by_copy=Releases("0.5.9", "0.5.21"),
        by_itself=Releases("0.5.22"),
    ),
    # These two inherit Llama's setter, but not its forward; read, and not run by any test.
    _row("llama4", "Llama4Model", by_itself=Releases("0.5.21")),
    _row("teleflm", "TeleFLMModel", by_itself=Releases("0.5.22")),
    # Up to 0.5.20 Qwen3's inner model had no forward of its own. Qwen2's appended the embedding
    # output itself, and the first fused add-norm on a GPU writes the residual stream into it.
    _row(
        "qwen2",
        "Qwen2Model",
        by_copy=Releases("0.5.9", "0.5.20"),
        overwritten=Releases("0.5.9", "0.5.20"),
        by_itself=Releases("0.5.21"),
    ),
    _row("qwen3", "Qwen3Model", by_itself=Releases("0.5.21")),
    # Captured within the layer, cloned. Qwen3-MoE inherits this forward.
    _row(
        "qwen2_moe",
        "Qwen2MoeModel",
        by_itself=Releases("0.5.9"),
        layer_flag="_is_layer_to_capture",
    ),
    _row(
        "glm4_moe",
        "Glm4MoeModel",
        by_copy=Releases("0.5.9", "0.5.20"),
        by_itself=Releases("0.5.21"),
    ),
    # A TypeError up to 0.5.16; 0.5.17 to 0.5.20 appended the embedding output itself, as Qwen2 did.
    _row(
        "gpt_oss",
        "GptOssModel",
        by_copy=Releases("0.5.9", "0.5.20"),
        by_itself=Releases("0.5.21"),
        overwritten=Releases("0.5.17", "0.5.20"),
        last=Releases("0.5.17"),
    ),
)


def of_forward(inner: str) -> EmbeddingCapture | None:
    """The row of a forward, by ``module:Class`` of the class that defines it."""
    return next((row for row in EMBEDDING_CAPTURE if row.inner == inner), None)
