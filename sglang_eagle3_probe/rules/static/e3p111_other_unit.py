"""E3P111: the list looks like the other unit than the one it is read in.

Which unit a target class reads is data in ``host/target_classes.py`` (0.5.6 to 0.5.23).
"""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.host.conventions import recognise_producer
from sglang_eagle3_probe.rules.base import Page, Result, Seen
from sglang_eagle3_probe.rules.static.base import StaticRule, tensor_names
from sglang_eagle3_probe.rules.static.layer_ids import MEASURE, asked_of_files, evidence, fix_for

PAGE = Page(
    checks="An explicit list against the default in both units, and against the unit of the "
    "trainer that wrote the config.",
    why="Most SGLang classes add 1 to an explicit list; DeepSeek-V2/V3, Kimi-K2.5 and GLM-4 MoE "
    "Lite do so only if it starts with 1, gpt-oss only if it does not reach the last layer. Read "
    "in the wrong unit, every slot is one layer off.",
    evidence="The list, the number of layers, the boundaries in force.",
    fix='Write the list in the unit that the target class reads: `"eagle_config": '
    '{"eagle_aux_hidden_state_layer_ids": [...]}` with the numbers in the finding.',
    ignore="When you know the list is right, for instance from `infer-layers`.",
)


def _check(situation: Situation) -> list[Result]:
    found = asked_of_files(situation)
    if found is None or found.ids is None or -1 in found.ids:
        return []
    n = found.num_layers
    default = (2, n // 2, n - 3)
    late = found.boundaries == tuple(i + 1 for i in found.ids)
    if late and found.ids == default:
        return [
            RULE.finding(
                "warning",
                f"{list(found.ids)} is read as output ids, but it is the usual default in "
                "boundaries: every slot is probably one layer late",
                evidence(situation, found),
                f"if boundaries were meant, {fix_for(situation, default, n)}",
            )
        ]
    if not found.as_is or found.ids == default or max(found.ids) == n:
        return []
    producer = recognise_producer(situation.draft.config, tensor_names(situation) or None)
    early = tuple(o + 1 for o in found.ids)
    if producer.unit == "o" and producer.confidence != "guess":
        return [
            RULE.finding(
                "warning",
                f"{list(found.ids)} is taken for boundaries, but {producer.name} writes output "
                "ids: every slot is probably one layer early",
                [*evidence(situation, found), Seen("producer", producer.name, producer.why)],
                f"if output ids were meant, {fix_for(situation, early, n)}",
            )
        ]
    return [
        RULE.unknown(
            f"{situation.target_class} of SGLang {situation.release} takes {list(found.ids)} for "
            "boundaries; if the trainer wrote output ids, every slot is one layer early",
            f"the trainer's recipe; or {MEASURE}. For output ids {fix_for(situation, early, n)}",
        )
    ]


RULE = StaticRule("E3P111", "layer ids may be in the other unit", PAGE, _check)
