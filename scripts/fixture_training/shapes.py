"""Sizes of every fixture model and the recipes, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from .draft_model import DraftShape
from .target_model import TargetShape
from .train_draft import DraftRecipe
from .train_target import TargetRecipe

VOCAB_SIZE = 2000
DRAFT_VOCAB_SIZE = 1000

DEEPSEEK = TargetShape(
    kind="deepseek",
    vocab_size=VOCAB_SIZE,
    hidden_size=192,
    num_layers=10,
    num_heads=4,
    intermediate_size=288,
    q_lora_rank=64,
    kv_lora_rank=48,
    qk_nope_head_dim=24,
    qk_rope_head_dim=16,
    v_head_dim=32,
)
LLAMA = TargetShape(
    kind="llama",
    vocab_size=VOCAB_SIZE,
    hidden_size=96,
    num_layers=8,
    num_heads=4,
    intermediate_size=256,
    num_kv_heads=2,
    head_dim=32,
)
EMBED_BOUNDARIES = (0, 3, 6)
"""Output ids [-1, 2, 5]: the embedding, a low and a middle layer."""


def _deepseek_draft(boundaries: tuple[int, ...]) -> DraftShape:
    return DraftShape(
        vocab_size=VOCAB_SIZE,
        draft_vocab_size=DRAFT_VOCAB_SIZE,
        hidden_size=DEEPSEEK.hidden_size,
        num_heads=6,
        num_kv_heads=2,
        head_dim=32,
        intermediate_size=320,
        boundaries=boundaries,
    )


DEEPSEEK_DRAFT_EMBED = _deepseek_draft(EMBED_BOUNDARIES)
DEEPSEEK_DRAFT_DEFAULT = _deepseek_draft(DEEPSEEK.default_boundaries)
LLAMA_DRAFT = DraftShape(
    vocab_size=VOCAB_SIZE,
    draft_vocab_size=DRAFT_VOCAB_SIZE,
    hidden_size=LLAMA.hidden_size,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    intermediate_size=256,
    boundaries=LLAMA.default_boundaries,
)

DEEPSEEK_RECIPE = TargetRecipe(steps=800, matrix_lr=0.008)
LLAMA_RECIPE = TargetRecipe(steps=600, matrix_lr=0.01, seed=21)
TARGETS = {"deepseek": (DEEPSEEK, DEEPSEEK_RECIPE), "llama": (LLAMA, LLAMA_RECIPE)}


@dataclass(frozen=True)
class DraftPlan:
    """One draft: its target, sizes, recipe, and what its config says about captured layers."""

    target: str
    shape: DraftShape
    recipe: DraftRecipe
    aux_layer_ids: list[int] | None


DRAFTS = {
    "deepseek-draft-embed": DraftPlan(
        "deepseek", DEEPSEEK_DRAFT_EMBED, DraftRecipe(400), [h - 1 for h in EMBED_BOUNDARIES]
    ),
    "deepseek-draft-default": DraftPlan("deepseek", DEEPSEEK_DRAFT_DEFAULT, DraftRecipe(400), None),
    "llama-draft": DraftPlan("llama", LLAMA_DRAFT, DraftRecipe(300, seed=31), None),
}
