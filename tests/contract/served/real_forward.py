"""What one real forward of a target class captures; part of the worker, beside real_sglang."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

TOKENS = 5


def prefill(tokens: Any, **more: Any) -> Any:
    """A prefill of one prompt (int64 [T]), in this release's own batch; it takes what it knows."""
    import torch
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

    count = len(tokens)
    values = {
        "forward_mode": ForwardMode.EXTEND,
        "batch_size": 1,
        "input_ids": tokens,
        "req_pool_indices": torch.zeros(1, dtype=torch.long),
        "seq_lens": torch.tensor([count]),
        "out_cache_loc": torch.arange(count),
        "seq_lens_sum": count,
        "positions": torch.arange(count),
        "extend_num_tokens": count,
        "extend_seq_lens": torch.tensor([count]),
        "extend_prefix_lens": torch.tensor([0]),
        "extend_seq_lens_cpu": [count],
        "extend_prefix_lens_cpu": [0],
        "seq_lens_cpu": torch.tensor([count]),
        "num_token_non_padded_cpu": count,
        "global_num_tokens_cpu": None,
        **more,
    }
    fields = ForwardBatch.__dataclass_fields__
    return ForwardBatch(**{name: value for name, value in values.items() if name in fields})


def seen_by_forward(model: Any) -> dict[str, Any]:
    """Boundaries that reached the logits processor, in the order of concatenation."""
    import torch

    decoder = find_decoder(model)
    stream = Stream(decoder)
    kept: dict[str, Any] = {}

    class Processor(torch.nn.Module):
        def forward(self, *_: Any, **__: Any) -> None:
            raise AssertionError

    def processor(*given: Any, **named: Any) -> Any:
        aux = named.get("aux_hidden_states", given[4] if len(given) > 4 else None)
        kept["aux"] = None if aux is None else pieces(aux, stream.embedding.shape[-1])
        return SimpleNamespace()

    instance = Processor()
    instance.forward = processor  # type: ignore[method-assign]
    holder = model if hasattr(model, "logits_processor") else model.language_model
    holder.logits_processor = instance
    batch = prefill(torch.arange(TOKENS) + 3)
    with torch.no_grad():
        model.forward(batch.input_ids, batch.positions, batch)
    if kept["aux"] is None:
        return {"count": None, "boundaries": None}
    return {
        "count": len(kept["aux"]),
        "boundaries": [which(state, stream.states()) for state in kept["aux"]],
    }


def pieces(aux: Any, width: int) -> list[Any]:
    """Captured states one by one; some classes hand them over concatenated already."""
    import torch

    whole = aux if isinstance(aux, torch.Tensor) else None
    if whole is None and len(aux) == 1 and aux[0].shape[-1] > width:
        whole = aux[0]
    found = whole.split(width, dim=-1) if whole is not None else aux
    return [state.clone() for state in found]


def find_decoder(model: Any) -> Any:
    """The module that holds the layers and the final norm."""
    for module in model.modules():
        if hasattr(module, "layers") and hasattr(module, "norm"):
            return module
    raise AttributeError("no decoder with layers and norm")


class Stream:
    """The residual stream at every boundary, from what the parts of each layer give out.

    Boundary 0 is what the embedding gives; each attention and each feed-forward adds its output.
    Layers that norm those outputs first (Gemma) are followed at their inputs instead.
    """

    def __init__(self, decoder: Any) -> None:
        self.layers = list(decoder.layers)
        self.embedding: Any = None
        self.added: dict[int, list[Any]] = {i: [] for i in range(len(self.layers))}
        self.entered: dict[int, Any] = {}
        embed = getattr(decoder, "embed_tokens", None) or decoder.word_embeddings
        embed.register_forward_hook(self._embedded)
        for index, layer in enumerate(self.layers):
            for part in parts_of(layer):
                part.register_forward_hook(self._adds(index))
            layer.register_forward_pre_hook(self._enters(index), with_kwargs=True)
        decoder.norm.register_forward_pre_hook(self._enters(len(self.layers)), with_kwargs=True)
        self.by_inputs = hasattr(self.layers[0], "post_feedforward_layernorm")

    def _embedded(self, _: Any, __: Any, output: Any) -> None:
        self.embedding = output.clone()

    def _adds(self, index: int) -> Callable[..., None]:
        def hook(_: Any, __: Any, output: Any) -> None:
            self.added[index].append(output.clone())

        return hook

    def _enters(self, index: int) -> Callable[..., None]:
        def hook(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            bound = inspect.signature(type(module).forward).bind(module, *given, **named).arguments
            hidden = bound.get("hidden_states", bound.get("x"))
            residual = bound.get("residual")
            if hidden is not None:
                self.entered[index] = hidden.clone() if residual is None else hidden + residual

        return hook

    def states(self) -> dict[int, Any]:
        """Boundary -> stream, (tokens, hidden)."""
        if self.by_inputs:
            return self.entered
        found = {0: self.embedding}
        for index in range(len(self.layers)):
            found[index + 1] = found[index] + sum(self.added[index])
        return found


def parts_of(layer: Any) -> list[Any]:
    """Attention and feed-forward of a layer; attention and experts become stand-ins."""
    found = []
    for name in ("self_attn", "attention", "linear_attn", "attn"):
        if hasattr(layer, name):
            part = getattr(layer, name)
            part.forward = hands_on(0.5)
            found.append(part)
    for name in ("mlp", "feed_forward", "block_sparse_moe"):
        if hasattr(layer, name):
            part = getattr(layer, name)
            if any(
                "Experts" in type(m).__name__ or "MoE" in type(m).__name__ for m in part.modules()
            ):
                part.forward = hands_on(0.25)
            found.append(part)
    return found


def hands_on(factor: float) -> Callable[..., Any]:
    """A forward that gives out its input times a number."""
    import torch

    def forward(*given: Any, **named: Any) -> Any:
        found = named.get("hidden_states")
        if found is None:
            found = next(g for g in given if isinstance(g, torch.Tensor) and g.dim() == 2)
        return found * factor

    return forward


def which(state: Any, stream: dict[int, Any]) -> int | None:
    """The boundary whose values these are."""
    import torch

    for index, value in sorted(stream.items()):
        if value.shape == state.shape and torch.allclose(value, state, rtol=1e-4, atol=1e-5):
            return index
    return None
