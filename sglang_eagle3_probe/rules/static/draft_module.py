"""Which tensors SGLang's two EAGLE-3 draft classes take, per release, without importing them.

Read in ``models/llama_eagle3.py`` and ``models/kimi_k25_eagle3.py`` of 0.5.9 to 0.5.23: the modules
built in ``__init__`` and the name handling of ``load_weights``. Names here are those a checkpoint
would use: without ``model.``, the layer called ``layers.0``, stacked projections by their parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.static.base import is_mla, key, known_class, since

LEGACY = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
LLAMA_MATRICES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
MLA_MATRICES = (
    "self_attn.q_a_proj",
    "self_attn.kv_a_proj_with_mqa",
    "self_attn.q_b_proj",
    "self_attn.kv_b_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
MLA_NORMS = ("self_attn.q_a_layernorm", "self_attn.kv_a_layernorm")
LAYER_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


SCALES = ("_scale", ".scales", ".qzeros")
PACKED = frozenset({"I8", "U8", "I32", "U32", "F4", "F6_E2M3", "F6_E3M2"})
"""Names of scales, and dtypes of packed weights."""


@dataclass(frozen=True)
class Parameters:
    """What the draft class has to fill.

    Args:
        matrices: weights that start from uninitialised memory or, for ``fc``, from random numbers.
        norms: weights that start at ones.
        optional: weights with a slot that the target fills, or whose absence harms nothing.
    """

    matrices: frozenset[str]
    norms: frozenset[str]
    optional: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.matrices | self.norms | self.optional


def reads_fc_norm(situation: Situation) -> bool:
    """``fc_norm``/``use_aux_norm`` and ``norm_output``: llama from 0.5.12, MLA from 0.5.13."""
    return since(situation, "0.5.13" if is_mla(situation) else "0.5.12")


def reads_norm_before_fc(situation: Situation) -> bool:
    """``norm_before_fc``: llama from 0.5.17, MLA in no release."""
    return not is_mla(situation) and since(situation, "0.5.17")


def fc_norm_flag(situation: Situation) -> bool:
    config = situation.draft.config
    return bool(config.get("fc_norm") or config.get("use_aux_norm"))


def norm_before_fc_flag(situation: Situation) -> bool:
    nested = situation.eagle_config or {}
    return bool(nested.get("norm_before_fc", situation.draft.config.get("norm_before_fc", False)))


def aux_count(situation: Situation) -> int:
    """How many target states the draft class sizes ``fc`` for.

    llama: 3 to 0.5.11; then ``num_aux_hidden_states``, nested ids, 3. MLA: nested ids, top-level
    ids, 3.
    """
    nested, top = situation.nested_ids, situation.top_level_ids
    if is_mla(situation):
        for ids in (nested, top):
            if ids is not None:
                return len(ids)
        return 3
    if not since(situation, "0.5.12"):
        return 3
    named = situation.draft.integer("num_aux_hidden_states")
    if named is not None:
        return named
    return len(nested) if nested else 3


def num_layers(situation: Situation) -> int:
    """Draft layers the class builds: MLA and llama to 0.5.11 build one."""
    found = situation.draft.integer("num_hidden_layers")
    if is_mla(situation) or not since(situation, "0.5.12") or found is None:
        return 1
    return max(0, min(found, 64))


def input_width(situation: Situation) -> int | None:
    """Width of one target state as the draft class sees it."""
    named = situation.draft.integer("target_hidden_size")
    return named if named is not None else situation.draft_hidden


def parameters(situation: Situation) -> Parameters | None:
    """What the class builds for this config in this release; None for an unknown class."""
    if not known_class(situation):
        return None
    config = situation.draft.config
    mla = is_mla(situation)
    matrices, norms, optional = {"fc.weight"}, {"norm.weight"}, {"embed_tokens.weight"}
    bias = bool(config.get("bias", False))
    if bias:
        matrices.add("fc.bias")
    for i in range(num_layers(situation)):
        prefix = f"layers.{i}."
        matrices |= {f"{prefix}{n}.weight" for n in (MLA_MATRICES if mla else LLAMA_MATRICES)}
        norms |= {f"{prefix}{n}.weight" for n in (*LAYER_NORMS, *(MLA_NORMS if mla else ()))}
        if i > 0:
            # layers after the first norm with hidden_norm; input_layernorm is built, not used
            norms.discard(f"{prefix}input_layernorm.weight")
            optional.add(f"{prefix}input_layernorm.weight")
        if not mla and (bias or config.get("attention_bias")):
            matrices.add(f"{prefix}self_attn.o_proj.bias")
    if reads_fc_norm(situation) and fc_norm_flag(situation):
        norms |= {f"fc_norm.{i}.weight" for i in range(min(aux_count(situation), 64))}
    if reads_norm_before_fc(situation) and norm_before_fc_flag(situation):
        norms.add("input_norm.weight")
    if not config.get("tie_word_embeddings", False):
        if config.get("draft_vocab_size") is None:
            optional.add("lm_head.weight")
        else:
            matrices.add("lm_head.weight")
    width, hidden = situation.draft.integer("target_hidden_size"), situation.draft_hidden
    if width is not None and hidden is not None and width != hidden:
        optional.discard("embed_tokens.weight")
        matrices.add("embed_tokens.weight")
    return Parameters(frozenset(matrices), frozenset(norms), frozenset(optional))


def canonical(name: str, situation: Situation) -> str | None:
    """The name above that ``load_weights`` would make of a checkpoint's name.

    None: a vocabulary map, which is handled apart. A name nobody takes comes back as it is, or in
    a form that :func:`parameters` does not hold.
    """
    if is_mla(situation):
        return _canonical_mla(name)
    if "d2t" in name or "t2d" in name:
        return None
    if since(situation, "0.5.12"):
        name = name.replace("midlayer", "layers.0")
        for old, new in LEGACY.items():
            name = name.replace(old, new)
    elif "midlayer" in name:
        name = name.replace("midlayer", "layers.0")
    elif re.search(r"(^|\.)layers\.\d", name):
        return f"untaken:{name}"  # only ``midlayer`` exists in these releases
    if name.startswith("lm_head."):
        return name
    return name.removeprefix("model.")


def _canonical_mla(name: str) -> str | None:
    if re.search(r"(^|\.)(d2t|t2d)$", name):
        return None
    if name.startswith("model."):
        return f"untaken:{name}"  # another ``model.`` is put in front, and nothing has that name
    return re.sub(r"^midlayer\.", "layers.0.", name)


def split(situation: Situation) -> tuple[dict[str, str], list[str]]:
    """Checkpoint names that find a parameter (canonical -> stored), and those that find none."""
    known = parameters(situation)
    taken: dict[str, str] = {}
    left: list[str] = []
    if known is None or situation.draft.tensors is None:
        return taken, left
    for name in situation.draft.tensors:
        found = canonical(name, situation)
        if found is None:
            continue
        for one in _parts(found):
            if one in known.all:
                taken[one] = name
        if any(one in known.all for one in _parts(found)):
            continue
        left.append(name)
    return taken, sorted(left)


def _parts(name: str) -> tuple[str, ...]:
    """A projection stored already stacked fills its parts (llama takes it under that name)."""
    for stacked, parts in (
        ("self_attn.qkv_proj.", ("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj.")),
        ("mlp.gate_up_proj.", ("mlp.gate_proj.", "mlp.up_proj.")),
    ):
        if stacked in name:
            return tuple(name.replace(stacked, part) for part in parts)
    return (name,)


def missing(situation: Situation) -> tuple[list[str], list[str]]:
    """Matrices and norms of the class that no tensor of the checkpoint fills."""
    known = parameters(situation)
    if known is None or situation.draft.tensors is None:
        return [], []
    taken, _ = split(situation)
    return sorted(known.matrices - taken.keys()), sorted(known.norms - taken.keys())


def quantised(situation: Situation) -> bool:
    """Whether the draft's checkpoint is quantised, so that its tensor names are another matter."""
    return situation.draft.quantization is not None


@dataclass(frozen=True)
class UnsaidQuantisation:
    """Quantised weights with their scales, in a checkpoint that names no quantisation."""

    float8: tuple[str, ...]
    packed: tuple[str, ...]
    scales: tuple[str, ...]


def unsaid_quantisation(situation: Situation) -> UnsaidQuantisation | None:
    """What of it there is; None: nothing, or the checkpoint names its quantisation."""
    tensors = situation.draft.tensors
    if tensors is None or quantised(situation):
        return None
    scales = tuple(n for n in sorted(tensors) if any(part in n for part in SCALES))
    weights = {n: t.dtype for n, t in tensors.items() if n not in scales and len(t.shape) > 1}
    float8 = tuple(sorted(n for n, dtype in weights.items() if dtype.startswith("F8_")))
    packed = tuple(sorted(n for n, dtype in weights.items() if dtype in PACKED))
    return UnsaidQuantisation(float8, packed, scales) if scales and (float8 or packed) else None


def quantisation_key(situation: Situation) -> str:
    """Where the draft's quantisation is said, for evidence."""
    for name in ("quantization_config", "compression_config"):
        if situation.draft.config.get(name) is not None:
            return key(situation, name)
    if situation.draft.quantization_file is not None:
        return "draft hf_quant_config.json"
    return key(situation, "quantization_config")
