"""An SGLang plugin that makes the engine compute the wrong thing: REPLAY_SPOILER names what.

``direct_map``: values of d2t are taken for target ids.
"""

from __future__ import annotations

import os
from typing import Any

import wrapt

VARIABLE = "REPLAY_SPOILER"


def install() -> None:
    """Called by SGLang in each process."""
    wanted = os.environ.get(VARIABLE)
    if wanted == "direct_map":
        wrapt.register_post_import_hook(_direct_map, "sglang.srt.models.llama_eagle3")


def _direct_map(module: Any) -> None:
    draft = module.LlamaForCausalLMEagle3
    load = draft.load_weights

    def load_weights(self: Any, weights: Any) -> Any:
        import torch

        result = load(self, weights)
        self.hot_token_id = self.hot_token_id - torch.arange(len(self.hot_token_id))
        return result

    draft.load_weights = load_weights
