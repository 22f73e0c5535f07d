"""What a draft computes, as plain values: read off its files as SGLang would, or as it was trained.

Sources: ``models/llama_eagle3.py`` and ``models/kimi_k25_eagle3.py`` of SGLang 0.5.6 to 0.5.23, and
what trainers do that no SGLang does (``trained_changes``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sglang_eagle3_probe.checkpoint.facts import CheckpointError, CheckpointFacts, plausible
from sglang_eagle3_probe.checkpoint.files import shown
from sglang_eagle3_probe.checkpoint.rope import rope_of
from sglang_eagle3_probe.offline.drafts.rotary import RopeSettings

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")


@dataclass(frozen=True)
class LatentSizes:
    """Sizes of latent attention (``Eagle3DeepseekV2ForCausalLM``)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class DraftPlan:
    """One way of running a draft's weights. Every field may be varied by name.

    Attributes:
        hidden: G, the draft's width. target_hidden: H, width of one aux slot.
        slots: aux slots that ``fc`` takes; 0 without ``fc``.
        fc: ``auto`` as SGLang does (skipped when the width is G already), ``skip``: the first G
            columns of the states are taken as they are.
        slot_order: slot of the given states that takes each slot's place; empty: as given.
        fc_norm: one norm a slot before ``fc``. norm_before_fc: one over all slots together.
        norm_before_residual: the residual of layer 0 is the normed state (speculators).
        double_norm: layer 0 reads ``hidden_norm(input_layernorm(state))`` (ModelOpt 0.41 to 0.47).
        norm_output: the recurrent state is taken after the last norm.
        last_norm: whose norm stands before the head; ``none``: none does.
        later_norm: which norm stands before the attention of layers 1 and up.
        head_norms: q_norm and k_norm. qkv_bias: biases of q, k and v. o_bias: of the output.
        window: rows that attention looks back, itself counted; None: all. ``window_moves``:
            with a chain's steps (servers); False: it stays where the chain starts (speculators).
        embedding, head: whose tensor. ``tied``: the head is the embedding in use.
        vocabulary_map: d2t holds offsets (``offset``, as SGLang reads it) or ids (``direct``);
            ``none``: draft ids are target ids.
    """

    hidden: int
    target_hidden: int
    slots: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope: RopeSettings
    latent: LatentSizes | None = None
    activation: str = "silu"
    fc: Literal["auto", "skip"] = "auto"
    slot_order: tuple[int, ...] = ()
    fc_norm: bool = False
    norm_before_fc: bool = False
    norm_before_residual: bool = False
    double_norm: bool = False
    norm_output: bool = False
    last_norm: Literal["own", "target", "none"] = "own"
    later_norm: Literal["hidden_norm", "input_layernorm"] = "hidden_norm"
    head_norms: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    window: int | None = None
    window_moves: bool = True
    embedding: Literal["target", "own"] = "target"
    head: Literal["own", "target", "tied"] = "own"
    vocabulary_map: Literal["offset", "direct", "none"] = "offset"


def plain_name(stored: str) -> str:
    """A tensor's name without what trainers put around it: ``layers.0.`` and ``fc_norm.0`` names.

    ``midlayer`` and ``aux_norm_low`` and so on are names that SGLang (0.5.12) reads as well.
    """
    name = stored.removeprefix("model.")
    if name.startswith("midlayer."):
        name = "layers.0." + name.removeprefix("midlayer.")
    for index, level in enumerate(("low", "mid", "high")):
        if name.startswith(f"aux_norm_{level}."):
            name = f"fc_norm.{index}." + name.removeprefix(f"aux_norm_{level}.")
    return name


def served_plan(draft: CheckpointFacts, shapes: Mapping[str, tuple[int, ...]]) -> DraftPlan:
    """As SGLang 0.5.23 runs it.

    Args:
        shapes: plain name -> shape of the stored tensors.

    Raises:
        CheckpointError: sizes are missing or do not fit each other.
    """
    config = draft.config
    hidden = _size(config, "hidden_size")
    heads = _size(config, "num_attention_heads")
    latent = _latent(config, shapes)
    head_dim = plausible(config.get("head_dim")) or hidden // heads
    target_hidden = plausible(config.get("target_hidden_size")) or hidden
    fc = shapes.get("fc.weight")
    slots = 0
    if fc is not None:
        if len(fc) != 2 or fc[0] != hidden or fc[1] % target_hidden:
            raise CheckpointError(
                f"fc.weight of the draft is {list(fc)}, expected [{hidden}, n x {target_hidden}] "
                "(hidden_size, and target_hidden_size or else hidden_size, of its config). "
                "Fix: correct the sizes in the draft's config.json."
            )
        slots = fc[1] // target_hidden
    activation = str(config.get("hidden_act", "silu"))
    if activation not in ACTIVATIONS:
        raise CheckpointError(
            f"the draft's hidden_act is {shown(activation)}; {', '.join(ACTIVATIONS)} can be "
            "computed here. Fix: none; SGLang's drafts know silu only."
        )
    eagle = config.get("eagle_config")
    eagle = eagle if isinstance(eagle, Mapping) else {}
    before_fc = eagle.get("norm_before_fc", config.get("norm_before_fc", False))
    return DraftPlan(
        hidden=hidden,
        target_hidden=target_hidden,
        slots=slots,
        layers=plausible(config.get("num_hidden_layers")) or 1,
        heads=heads,
        kv_heads=plausible(config.get("num_key_value_heads")) or heads,
        head_dim=head_dim,
        eps=_eps(config),
        rope=_rope(config, head_dim, latent),
        latent=latent,
        activation=activation,
        fc_norm=bool(config.get("fc_norm") or config.get("use_aux_norm")),
        # The class with latent attention has no such norm in any release.
        norm_before_fc=bool(before_fc) and latent is None,
        norm_output=bool(config.get("norm_output", False)),
        # q, k and v are replaced by projections without bias; the output keeps its own.
        o_bias=bool(config.get("attention_bias") or config.get("bias")) and latent is None,
        embedding="own" if target_hidden != hidden else "target",
        head=_head(config, shapes),
    )


def trained_changes(
    draft: CheckpointFacts, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Fields of the plan that the files say training had otherwise than SGLang serves it.

    Empty for a draft that SGLang serves as its files say.
    """
    config = draft.config
    served = served_plan(draft, shapes)
    eagle = config.get("eagle_config")
    eagle = eagle if isinstance(eagle, Mapping) else {}
    wanted: dict[str, Any] = {
        "norm_before_residual": bool(config.get("norm_before_residual", False)),
        "double_norm": bool(eagle.get("use_input_layernorm_in_first_layer", False)),
        "head_norms": "layers.0.self_attn.q_norm.weight" in shapes,
        "qkv_bias": "layers.0.self_attn.q_proj.bias" in shapes,
        "o_bias": "layers.0.self_attn.o_proj.bias" in shapes,
        "norm_before_fc": "input_norm.weight" in shapes or served.norm_before_fc,
        "fc_norm": "fc_norm.0.weight" in shapes or served.fc_norm,
        "window": _window(config),
    }
    wanted["window_moves"] = wanted["window"] is None
    if bool(eagle.get("return_hidden_post_norm", False)):
        wanted["norm_output"] = True
    if "embed_tokens.weight" in shapes:
        wanted["embedding"] = "own"
    if served.layers > 1 and "layers.1.hidden_norm.weight" not in shapes:
        wanted["later_norm"] = "input_layernorm"
    return {name: value for name, value in wanted.items() if getattr(served, name) != value}


def _size(config: Mapping[str, Any], key: str) -> int:
    found = plausible(config.get(key))
    if found is None or found <= 0:
        raise CheckpointError(
            f"the draft's config has no {key}. Fix: give the folder with the draft's whole config."
        )
    return found


def _eps(config: Mapping[str, Any]) -> float:
    found = config.get("rms_norm_eps", 1e-6)
    return float(found) if isinstance(found, (int, float)) and 0 <= found < 1 else 1e-6


def _latent(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> LatentSizes | None:
    if "layers.0.self_attn.kv_b_proj.weight" not in shapes:
        return None
    return LatentSizes(
        q_lora_rank=plausible(config.get("q_lora_rank")),
        kv_lora_rank=_size(config, "kv_lora_rank"),
        nope=_size(config, "qk_nope_head_dim"),
        rope=_size(config, "qk_rope_head_dim"),
        value=_size(config, "v_head_dim"),
    )


def _rope(config: Mapping[str, Any], head_dim: int, latent: LatentSizes | None) -> RopeSettings:
    """From the object that Transformers 5 makes of the config, as both draft classes read it."""
    rope = rope_of(config)
    theta = rope.theta(reads_new=True)
    if theta <= 0:
        raise CheckpointError(
            f"the draft's rotary theta is {theta:g}; a positive number is expected. "
            "Fix: write the theta of training into the draft's config.json."
        )
    scaling = dict(rope.scaling)
    original = plausible(config.get("original_max_position_embeddings"))
    if original and latent is None:
        scaling["original_max_position_embeddings"] = original
    if "mrope_section" in scaling and latent is None:
        # ``LlamaModel`` says so. Texts have all three positions alike.
        scaling["rope_type"] = "default"
    # Of the block alone Transformers makes no attribute, and ``LlamaAttention`` asks for that.
    share = config.get("partial_rotary_factor", 1.0)
    share = float(share) if isinstance(share, (int, float)) and 0 < share <= 1 else 1.0
    halves = config.get("rope_is_neox_style", True)
    pairs = config.get("rope_interleave", True) if latent else not halves
    return RopeSettings(
        size=latent.rope if latent else int(share * head_dim),
        theta=theta,
        scaling=scaling or None,
        positions=plausible(config.get("max_position_embeddings")) or (4096 if latent else 2048),
        pairs=bool(pairs),
        latent=latent is not None,
    )


def _head(
    config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> Literal["own", "target", "tied"]:
    if bool(config.get("tie_word_embeddings", False)):
        return "tied"
    if config.get("draft_vocab_size") is None or "lm_head.weight" not in shapes:
        return "target"
    return "own"


def _window(config: Mapping[str, Any]) -> int | None:
    found = plausible(config.get("sliding_window"))
    types = config.get("layer_types")
    if isinstance(types, list) and "sliding_attention" not in types:
        return None
    if config.get("use_sliding_window") is False or found is None or found <= 0:
        return None
    return found
