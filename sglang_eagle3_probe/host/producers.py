"""Who made a draft, and in which unit that trainer writes layer ids. Pure data and functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["o", "h", "unknown"]
"""Output id, boundary, or not to be told."""
Confidence = Literal["sure", "likely", "guess"]


@dataclass(frozen=True)
class Trainer:
    """One trainer's conventions."""

    name: str
    key: str
    """Where it writes the list; empty: nowhere."""
    unit: Unit
    default: str
    """What it trains on without a list, as boundaries."""
    order: Literal["ascending", "list order"]
    embedding: bool
    """Whether it can be trained on the embedding output at all."""


NESTED = "eagle_config.eagle_aux_hidden_state_layer_ids"
TOP = "eagle_aux_hidden_state_layer_ids"
STANDARD = "[2, N//2, N-3]"
TRAINERS: dict[str, Trainer] = {
    row.name: row
    for row in (
        Trainer("EAGLE", "", "h", STANDARD, "ascending", False),
        Trainer("SpecForge", NESTED, "o", STANDARD, "list order", False),
        Trainer("ModelOpt", NESTED, "o", STANDARD, "ascending", False),
        Trainer("NeMo Automodel", "", "o", STANDARD, "list order", False),
        Trainer("TorchSpec", NESTED, "o", STANDARD, "list order", False),
        Trainer("AngelSlim", "aux_hidden_states_layer_ids", "o", STANDARD, "list order", False),
        Trainer("speculators", TOP, "h", STANDARD, "ascending", True),
        Trainer("BaldEagle", "", "h", STANDARD, "ascending", False),
    )
}
"""speculators 0.3 and 0.4 generated data one layer later ([3, N//2+1, N-2])."""
MODELOPT_KEYS = (
    "use_mtp_layernorm",
    "next_layer_regular",
    "use_last_layernorm",
    "use_input_layernorm_in_first_layer",
    "eh_proj_before_attn",
)


@dataclass(frozen=True)
class Producer:
    """The trainer recognised, and why."""

    name: str
    """A key of TRAINERS, several joined by " or ", or ``unknown``."""
    why: str
    unit: Unit
    """Unit of the list as this producer writes it."""
    confidence: Confidence


def recognise_producer(config: Mapping[str, Any], names: Collection[str] | None = None) -> Producer:
    """The first mark that fits. ``names``: the checkpoint's tensor names, if known."""
    if "speculators_model_type" in config or "speculators_config" in config:
        return Producer(
            "speculators",
            "speculators_model_type or speculators_config is in its config; converted files may "
            "keep their first trainer's list",
            "h",
            "likely" if TOP in config else "sure",
        )
    if "aux_hidden_states_layer_ids" in config:
        return Producer("AngelSlim", "the key aux_hidden_states_layer_ids", "o", "sure")
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    if first in ("Eagle3Speculator", "Eagle3DraftModel", "PEagleDraftModel") and TOP in config:
        return Producer("speculators", f"architecture {first}, list at top level", "h", "likely")
    if first == "Eagle3LlamaForCausalLM":
        return Producer("AngelSlim", "architecture Eagle3LlamaForCausalLM", "o", "likely")
    block = config.get("eagle_config")
    block = block if isinstance(block, Mapping) else None
    by_names = _by_names(config, block, names) if names else None
    if by_names is not None:
        return by_names
    marks = [key for key in MODELOPT_KEYS if block is not None and key in block]
    if marks:
        return Producer("ModelOpt", f"{marks[0]} in eagle_config", "o", "likely")
    if first == "LlamaEagle3DraftModel":
        return Producer("NeMo Automodel", "architecture LlamaEagle3DraftModel", "o", "likely")
    if block is not None:
        return Producer(
            "SpecForge or TorchSpec", "an eagle_config block without other marks", "o", "guess"
        )
    if TOP in config:
        return Producer("unknown", "a list at top level, where vLLM reads it", "h", "guess")
    return Producer("unknown", "no mark of any trainer", "unknown", "guess")


def _by_names(
    config: Mapping[str, Any], block: Mapping[str, Any] | None, names: Collection[str]
) -> Producer | None:
    fused = any(name.startswith("midlayer.") for name in names)
    layers = any(name.startswith("layers.0.") for name in names)
    maps = {name for name in ("d2t", "t2d") if name in names}
    if "model.fc.weight" in names and any(name.startswith("model.layers.0.") for name in names):
        return Producer(
            "NeMo Automodel", "tensors under model. (it never writes its list)", "o", "likely"
        )
    if layers and (config.get("model_type") == "kimi_k2" or "kv_lora_rank" in config):
        return Producer(
            "TorchSpec or ModelOpt",
            "layers.0.* and MLA: TorchSpec's vLLM export writes boundaries, ModelOpt output ids",
            "unknown",
            "guess",
        )
    if layers and maps == {"d2t"}:
        return Producer("ModelOpt", "layers.0.* and d2t without t2d", "o", "likely")
    if fused and block is not None:
        return Producer(
            "SpecForge or TorchSpec", "midlayer.* and an eagle_config block", "o", "likely"
        )
    if fused and TOP not in config:
        return Producer(
            "EAGLE, SpecForge or TorchSpec",
            "midlayer.* without an eagle_config block: trained on the default boundaries",
            "unknown",
            "guess",
        )
    return None
