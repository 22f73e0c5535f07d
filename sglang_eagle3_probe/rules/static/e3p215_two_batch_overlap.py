"""E3P215: two-batch overlap runs layers past the place where aux states are captured.

``model_forward_maybe_tbo`` (from 0.5.21 ``model_forward_stages``) takes the layers over from the
loop that captures: all of them in ``qwen2_moe.py``, ``minimax_m2.py`` and ``minimax_m3.py``, those
from ``first_k_dense_replace`` on in ``deepseek_v2.py``, ``glm4_moe.py``, ``glm4_moe_lite.py`` and
``glm5_next.py``. Read in 0.5.9, 0.5.14, 0.5.17, 0.5.20 and 0.5.23.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import lookup
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, target_key
from sglang_eagle3_probe.rules.static.layer_ids import evidence, in_force

PAGE = Page(
    checks="`--enable-two-batch-overlap` with EAGLE3 on target classes whose overlapped layers do "
    "not capture: DeepSeek-V2/V3, Kimi-K2.5, GLM-4 MoE (and Lite), GLM-5, Qwen2/3-MoE, MiniMax-M2 "
    "and M3.",
    why="A batch that is large enough is split in two and runs through another loop over the "
    "layers, which captures nothing. One state or all are missing, and the server stops at the "
    "first such batch; small batches work, so a short test does not show it.",
    evidence="The argument, the list, and the first layer that is overlapped.",
    fix="Start the server without `--enable-two-batch-overlap`.",
    ignore="Never with EAGLE3.",
)
ALL_LAYERS = frozenset({"qwen2_moe", "qwen3_moe", "minimax_m2", "minimax_m3", "minimax_m3_vl"})
AFTER_DENSE = frozenset({"deepseek_v2", "kimi_k25", "glm4_moe", "glm4_moe_lite", "glm5_next"})
"""Model files, by the layers that the overlap takes over."""


def _first_overlapped(situation: Situation) -> int | None:
    """The first layer that the overlap runs; None: none."""
    row = lookup(situation.target_class)
    if row is None:
        return None
    if row.file in ALL_LAYERS:
        return 0
    dense = situation.target.integer("first_k_dense_replace")
    layers = situation.num_layers or 0
    # Without dense layers, or with nothing else, these classes take the ordinary loop.
    if row.file in AFTER_DENSE and dense is not None and 0 < dense < layers:
        return dense
    return None


def _check(situation: Situation) -> list[Result]:
    if not situation.argument("enable_two_batch_overlap"):
        return []
    found, first = in_force(situation), _first_overlapped(situation)
    if found is None or first is None:
        return []
    lost = [h for h in found.boundaries if h >= first]
    if not lost:
        return []
    return [
        RULE.finding(
            "error",
            f"two-batch overlap runs {situation.target_class} from layer {first} on without "
            f"capturing: boundaries {lost} are missing in every batch that is split, and the "
            "server stops",
            [
                Seen("--enable-two-batch-overlap", True, "arguments"),
                *evidence(situation, found),
                Seen(
                    "first layer that is overlapped",
                    first,
                    target_key(situation, "first_k_dense_replace")
                    if first
                    else f"{situation.target_class} of SGLang {situation.release}",
                ),
            ],
            "start the server without `--enable-two-batch-overlap`",
        )
    ]


RULE = StaticRule("E3P215", "two-batch overlap loses aux states", PAGE, _check)
