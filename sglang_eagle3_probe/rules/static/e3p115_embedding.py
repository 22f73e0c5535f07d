"""E3P115: the embedding output is asked for, and this class and release cannot give it.

Which class captures boundary 0 since which release is data in ``host/target_classes.py``.
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import Unserved, embedding_by_probe, ids_to_write, reach
from sglang_eagle3_probe.rules.base import Page, Result
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.layer_ids import (
    InForce,
    evidence,
    gives_embedding,
    in_force,
    patched_serving,
    write_text,
)

PAGE = Page(
    checks="Lists with -1, or whose boundary 0 is the embedding output, against what the target's "
    "class does with it in this release.",
    why="Where a class takes the list as it is, -1 is never met: one state is missing, the server "
    "stops, and the other ids are one layer early. Where it adds 1, older releases add a residual "
    "that does not exist yet and stop with a TypeError.",
    evidence="The list, the boundaries in force, the class and release.",
    fix="Start the server with `--enable-probe`: on DeepSeek-V2/V3, Kimi-K2.5, Llama, Qwen2 and "
    "Qwen3 (dense and MoE), GLM-4 MoE and gpt-oss it reads a list with -1 as output ids and "
    "captures the embedding output. On DeepSeek-V2/V3 and Kimi-K2.5 `sglang-eagle3-probe "
    "patch-source` puts the same into SGLang's own files; `doctor --patched-source` then judges "
    "those. Where the class takes a list as it is and can capture boundary 0, the finding also "
    "names the list that a released SGLang reads rightly.",
    ignore="Never.",
)


def _without_probe(situation: Situation, found: InForce) -> str:
    """The same boundaries as this very release would read them, where it can capture them all."""
    n, wanted = found.num_layers, tuple(o + 1 for o in found.ids or ())
    if situation.live is not None or wanted != tuple(sorted(set(wanted))):
        return ""
    if any(reach(situation.target_class, situation.release, h, n) != "captured" for h in wanted):
        return ""
    ids = ids_to_write(situation.target_class, situation.release, wanted, n)
    if isinstance(ids, Unserved):
        return ""
    return f"; or, for SGLang {situation.release} as released, {write_text(ids)}"


def _check(situation: Situation) -> list[Result]:
    found = in_force(situation)
    if found is None or found.ids is None or gives_embedding(situation):
        return []
    lost = -1 in found.boundaries
    if not lost and 0 not in found.boundaries:
        return []
    fix = patched_serving(situation)
    if situation.live is not None:
        fix = (
            "the probe is on, but not its patch embedding_capture: leave it in "
            "SGLANG_EAGLE3_PROBE_PATCHES; where it is there, the patch does not know "
            f"{situation.target_class} yet, and only a draft trained on other layers can be served"
        )
    elif not embedding_by_probe(situation.target_class):
        fix = (
            'name other layers in `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}` '
            "and train with them; the probe does not know this class"
        )
    if lost:
        return [
            RULE.finding(
                "error",
                f"{situation.target_class} of SGLang {situation.release} takes {found.list_text} "
                "as it is: -1 is never captured, and the other ids are one layer early",
                evidence(situation, found),
                fix + _without_probe(situation, found),
            )
        ]
    outcome = reach(situation.target_class, situation.release, 0, found.num_layers)
    if outcome == "captured":
        return []
    if outcome == "unknown":
        return [
            RULE.unknown(
                f"whether {situation.target_class} of SGLang {situation.release} captures the "
                "embedding output is not known",
                "start the server with `--enable-probe` and read the layer ids in its report",
            )
        ]
    return [
        RULE.finding(
            "error",
            f"{situation.target_class} of SGLang {situation.release} cannot capture the embedding "
            "output: the first forward stops, as there is no residual yet",
            evidence(situation, found),
            fix + ", or upgrade SGLang",
        )
    ]


RULE = StaticRule("E3P115", "the embedding output cannot be captured", PAGE, _check)
