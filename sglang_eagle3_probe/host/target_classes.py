"""Every SGLang target class with a setter for layer ids: what it does to them, per release.

Pure data, read from ``set_eagle3_layers_to_capture`` and the forward of each model file, releases
0.5.6 to 0.5.23. Boundaries h throughout: 0 = embedding output, N = before the final norm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Release: TypeAlias = tuple[int, int, int]
Reading = Literal["plus one", "as is unless the first is 1", "as is if the largest is N"]
"""What is done to an explicit list: h = id + 1; or deepseek_v2's and gpt_oss's conditions."""
Probed = Literal["nothing", "order", "order and embedding"]
"""What the probe does for a class: keep the order of a list and read -1; also capture boundary 0 in
every release from 0.5.9 on (``host/embedding_capture.py``)."""
Reach = Literal["captured", "crash", "lost", "unknown"]
"""What becomes of a boundary: ``lost``: nothing is captured, one state fewer reaches the draft."""

OLDEST_READ: Release = (0, 5, 6)
NEWEST_READ: Release = (0, 5, 23)


@dataclass(frozen=True)
class Fault:
    """A class captures something other than the residual stream although the ids are right."""

    since: Release
    until: Release
    what: str
    needs: str = ""
    """Condition besides the release; empty: always."""
    captures_nothing: bool = False
    boundary: int | None = None
    """The only boundary that is wrong; None: all are."""


@dataclass(frozen=True)
class TargetClass:
    """One model class with a setter for layer ids."""

    file: str
    first: Release = OLDEST_READ
    """First release with the setter, as far as read."""
    until: Release | None = None
    rule: tuple[tuple[Release, Reading], ...] = ((OLDEST_READ, "plus one"),)
    default_shift: int = 0
    """Added to [2, N//2, N-3] when no list is given."""
    embedding_since: Release | None = OLDEST_READ
    """Boundary 0 comes out from here on (``faults`` say if it is right); before, TypeError."""
    embedding_known: bool = True
    last_since: Release | None = None
    """Boundary N comes out from here on."""
    past_end: Reach = "lost"
    """What boundary N does otherwise."""
    strict_since: Release | None = None
    """From here on a state that was not captured is a RuntimeError instead of a narrow tensor."""
    faults: tuple[Fault, ...] = ()
    probed: Probed = "nothing"
    also: tuple[str, ...] = field(default=())
    """Architectures that inherit the setter (in 0.5.23)."""


def _v(patch: int) -> Release:
    return (0, 5, patch)


def _partial(until: int, since: int = 6) -> Fault:
    return Fault(
        _v(since),
        _v(until),
        "each tensor-parallel rank captures its own unreduced part of the sum while all-reduce "
        "fusion is on, so the states differ by batch size and rank",
        needs="tp_size > 1 with flashinfer all-reduce fusion",
    )


def _nothing(since: int, until: int) -> Fault:
    return Fault(
        _v(since),
        _v(until),
        "the list is set but the layers are never told, so no aux hidden state is captured",
        captures_nothing=True,
    )


def _embedding_overwritten(since: int) -> Fault:
    """The loop appends the embedding output itself, no copy of it (seen with in-place norms)."""
    return Fault(
        _v(since),
        _v(20),
        "what is captured as the embedding output is overwritten on a GPU by the residual stream "
        "of later layers",
        boundary=0,
    )


_NO_RESIDUAL = Fault(
    _v(17),
    _v(23),
    "the residual is left out: what is captured is the normed input of the next layer",
)
_OVERWRITTEN = Fault(
    _v(12), _v(21), "the captured tensor is overwritten within the layer (post-attention stream)"
)
_DEEPSEEK: tuple[tuple[Release, Reading], ...] = (
    (OLDEST_READ, "plus one"),
    (_v(13), "as is unless the first is 1"),
)

CLASSES: dict[str, TargetClass] = {
    "LlamaForCausalLM": TargetClass(
        "llama",
        embedding_since=_v(22),
        probed="order and embedding",
        also=(
            "MistralForCausalLM", "MistralFormatForCausalLM", "Ministral3ForCausalLM",
            "Phi3ForCausalLM", "InternLM3ForCausalLM", "IQuestCoderForCausalLM",
            "TeleFLMForCausalLM",
        ),
    ),
    "Llama4ForCausalLM": TargetClass(
        "llama4",
        embedding_since=_v(21),
        probed="order",
        also=("Llama4ForConditionalGeneration",),
    ),
    "Qwen2ForCausalLM": TargetClass(
        "qwen2", faults=(_embedding_overwritten(6),), probed="order and embedding"
    ),
    "Qwen3ForCausalLM": TargetClass(
        "qwen3", faults=(_embedding_overwritten(6),), probed="order and embedding"
    ),
    "Qwen2_5_VLForConditionalGeneration": TargetClass(
        "qwen2_5_vl", faults=(_embedding_overwritten(6),)
    ),
    "Qwen2MoeForCausalLM": TargetClass(
        "qwen2_moe", past_end="crash", probed="order and embedding"
    ),
    "Qwen3MoeForCausalLM": TargetClass(
        "qwen3_moe", past_end="crash", probed="order and embedding", also=("MellumForCausalLM",)
    ),
    "Qwen3NextForCausalLM": TargetClass("qwen3_next", first=_v(9), past_end="crash"),
    "Qwen3_5ForCausalLM": TargetClass(
        "qwen3_5_text", first=_v(22), past_end="crash", also=("Qwen3_5MoeForCausalLM",)
    ),
    "Qwen3VLForConditionalGeneration": TargetClass(
        "qwen3_vl",
        first=_v(11),
        faults=(_embedding_overwritten(11),),
        also=(
            "Qwen3VLMoeForConditionalGeneration", "InternS1ProForConditionalGeneration",
            "InternS2MobiusForConditionalGeneration", "InternS2PreviewForConditionalGeneration",
            "Cosmos3ForConditionalGeneration", "Qwen4ExpForConditionalGeneration",
        ),
    ),
    "Qwen3_5ForConditionalGeneration": TargetClass(
        "qwen3_5",
        first=_v(11),
        embedding_since=_v(22),
        past_end="crash",
        faults=(_nothing(11, 21),),
        also=("Qwen3_5MoeForConditionalGeneration",),
    ),
    "DeepseekV2ForCausalLM": TargetClass(
        "deepseek_v2",
        rule=_DEEPSEEK,
        embedding_since=_v(14),
        strict_since=_v(17),
        faults=(_partial(13),),
        probed="order and embedding",
        also=(
            "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM",
            "MistralLarge3ForCausalLM",
        ),
    ),
    "KimiK25ForConditionalGeneration": TargetClass(
        "kimi_k25",
        first=_v(10),
        rule=_DEEPSEEK,
        embedding_since=_v(14),
        strict_since=_v(17),
        faults=(_partial(13, 10),),
        probed="order and embedding",
    ),
    "Glm4MoeLiteForCausalLM": TargetClass(
        "glm4_moe_lite",
        first=_v(13),
        rule=((_v(13), "as is unless the first is 1"),),
        embedding_since=_v(21),
        faults=(_partial(20, 13),),
    ),
    "Glm4MoeForCausalLM": TargetClass(
        "glm4_moe",
        embedding_since=_v(21),
        faults=(_partial(20),),
        probed="order and embedding",
    ),
    "Glm5NextForConditionalGeneration": TargetClass(
        "glm5_next", first=_v(20), embedding_known=False
    ),
    "GptOssForCausalLM": TargetClass(
        "gpt_oss",
        rule=((OLDEST_READ, "plus one"), (_v(17), "as is if the largest is N")),
        embedding_since=_v(17),
        last_since=_v(17),
        faults=(_partial(20), _embedding_overwritten(17)),
        probed="order and embedding",
    ),
    "MiniMaxM2ForCausalLM": TargetClass("minimax_m2", embedding_since=_v(11)),
    "MiniMaxM3SparseForCausalLM": TargetClass(
        "minimax_m3", first=_v(16), last_since=_v(23), faults=(_nothing(16, 17),)
    ),
    "MiniMaxM3SparseForConditionalGeneration": TargetClass(
        "minimax_m3_vl", first=_v(18), default_shift=1, last_since=_v(23)
    ),
    "BailingMoEForCausalLM": TargetClass(
        "bailing_moe",
        first=_v(9),
        faults=(_partial(20, 9), _embedding_overwritten(9)),
        also=("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"),
    ),
    "ExaoneMoEForCausalLM": TargetClass(
        "exaone_moe",
        first=_v(9),
        embedding_since=_v(22),
        faults=(_partial(15, 9),),
        also=("ExaoneMoeForCausalLM",),
    ),
    "ApertusForCausalLM": TargetClass("apertus", embedding_since=_v(22)),
    "LongcatFlashForCausalLM": TargetClass("longcat_flash", embedding_since=_v(21)),
    "Gemma3ForCausalLM": TargetClass(
        "gemma3_causal",
        first=_v(12),
        last_since=_v(12),
        faults=(_NO_RESIDUAL,),
        also=("Gemma3ForConditionalGeneration",),
    ),
    "Gemma4ForCausalLM": TargetClass(
        "gemma4_causal",
        first=_v(12),
        last_since=_v(12),
        faults=(_OVERWRITTEN,),
        also=("Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
    ),
}  # fmt: skip
BY_NAME: dict[str, TargetClass] = {
    name: row for base, row in CLASSES.items() for name in (base, *row.also)
}
OWN_FORWARD = frozenset({"TeleFLMForCausalLM"})
"""Inherits the setter but not the forward that captures, so the probe has no copy to put in."""
WITHOUT_SETTER = frozenset({
    "AfmoeForCausalLM", "ArceeForCausalLM", "BaichuanForCausalLM", "BailingMoeV2_5ForCausalLM",
    "ChatGLMModel", "Cohere2ForCausalLM", "CohereForCausalLM", "DbrxForCausalLM",
    "DeepseekForCausalLM", "DeepseekV4ForCausalLM", "DeepseekVL2ForCausalLM",
    "Ernie4_5_ForCausalLM", "Ernie4_5_MoeForCausalLM", "Exaone4ForCausalLM",
    "ExaoneForCausalLM", "FalconH1ForCausalLM", "Gemma2ForCausalLM", "GemmaForCausalLM",
    "Glm4ForCausalLM", "Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration",
    "GPT2LMHeadModel", "GraniteForCausalLM", "GraniteMoeForCausalLM", "Grok1ForCausalLM",
    "HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM", "InternLM2ForCausalLM",
    "InternVLChatModel", "KimiK3ForConditionalGeneration", "KimiLinearForCausalLM",
    "KimiVLForConditionalGeneration", "Lfm2ForCausalLM", "MiMoForCausalLM",
    "MiMoV2ForCausalLM", "MiniCPM3ForCausalLM", "MiniCPMForCausalLM", "MiniCPMV",
    "Mistral3ForConditionalGeneration", "MixtralForCausalLM", "MllamaForConditionalGeneration",
    "NemotronHForCausalLM", "Olmo2ForCausalLM", "OlmoForCausalLM", "OlmoeForCausalLM",
    "PhiForCausalLM", "PhiMoEForCausalLM", "Qwen2AudioForConditionalGeneration",
    "Qwen2VLForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
    "StableLmForCausalLM", "Starcoder2ForCausalLM", "Step3p5ForCausalLM",
    "Step3VLForConditionalGeneration",
})  # fmt: skip
"""Text-generating classes of 0.5.23 that neither define nor inherit the setter (a selection)."""
