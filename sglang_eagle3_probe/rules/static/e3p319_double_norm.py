"""E3P319: ModelOpt normed the first layer's hidden half twice in training.

ModelOpt 0.41 to 0.47.0 computes hidden_norm(input_layernorm(h)); ``llama_eagle3.py`` of 0.5.9 to
0.5.23 computes hidden_norm(h). The checkpoint does not say which ModelOpt wrote it.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import (
    LLAMA,
    REPLAY,
    StaticRule,
    names_with,
    served_class,
)

PAGE = Page(
    checks="Signs of a ModelOpt export (`use_input_layernorm_in_first_layer` and its siblings in "
    "`eagle_config`, or `layers.0.*` with d2t but without t2d) whose first layer has both "
    "`input_layernorm` and `hidden_norm`.",
    why="ModelOpt 0.41 to 0.47.0 norms the target's half of the first layer twice in training. "
    "SGLang norms it once, so attention gets other inputs. The gap is the elementwise weight of "
    "`input_layernorm`: none while that weight is flat.",
    evidence="The config keys and tensor names.",
    fix="Replay training samples both ways. If the double norm fits better, multiply "
    "`layers.0.input_layernorm.weight` into `layers.0.hidden_norm.weight` (an approximate fix) or "
    "retrain with `use_input_layernorm_in_first_layer: false`.",
    ignore="When the draft was trained with a ModelOpt release outside that range.",
)
KEYS = (
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
    "next_layer_regular",
)


def _is_modelopt(situation: Situation) -> bool:
    nested = situation.eagle_config or {}
    if any(name in nested or name in situation.draft.config for name in KEYS):
        return True
    stored = bool(names_with(situation, "layers.0.")) and not names_with(situation, "midlayer")
    return stored and bool(names_with(situation, "d2t")) and not names_with(situation, "t2d")


def _check(situation: Situation) -> list[Result]:
    if served_class(situation) != LLAMA or not _is_modelopt(situation):
        return []
    nested = situation.eagle_config or {}
    first = nested.get(KEYS[0], situation.draft.config.get(KEYS[0]))
    both = names_with(situation, "layers.0.input_layernorm") and names_with(
        situation, "layers.0.hidden_norm"
    )
    if first is False or (situation.draft.tensors is not None and not both):
        return []
    return [
        RULE.unknown(
            "this looks like a ModelOpt export; ModelOpt 0.41 to 0.47.0 norms the first layer's "
            "hidden half twice in training and SGLang once",
            f"{REPLAY}, with one norm and with two; the flag of training is "
            "`eagle_config.use_input_layernorm_in_first_layer`",
        )
    ]


RULE = StaticRule("E3P319", "ModelOpt's double norm", PAGE, _check)
