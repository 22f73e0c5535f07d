"""E3P105: the list was read in one unit and looks like the other."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.rules.layer_lists import VARIABLE, default_boundaries

PAGE = Page(
    checks="Whether an explicit list without -1 could be meant in the other unit than the one the "
    "target's class reads it in. Silent when the trained ids are known (E3P101 compares them) or "
    "when the unit was set.",
    why="The same key holds output ids in some trainers and boundaries in others. Most SGLang "
    "classes add 1 to an explicit list; DeepSeek-V2/V3, Kimi-K2.5 and GLM-4 MoE Lite do so only if "
    "it starts with 1; gpt-oss only if it does not reach the last layer. Read in the wrong unit, "
    "every slot is one layer off.",
    evidence="`layer_ids.configured`, `.unit`, `.unit_why`, `.num_layers`.",
    fix=f"Find out what the trainer meant, then set {VARIABLE}_UNIT to output_id or boundary, or "
    "SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS to the output ids of training.",
    ignore="When you know the unit: say it, and the rule falls silent.",
)


def _unit_was_set(rank: RankEvidence) -> bool:
    settings = rank.header.settings if rank.header is not None else {}
    return settings.get(f"{VARIABLE}_UNIT", "auto") not in {"", "auto"}


def _check(rank: RankEvidence) -> list[Result]:
    ids = rank.layer_ids
    if ids is None or not ids.configured or -1 in ids.configured or _unit_was_set(rank):
        return []
    if ids.trained_output_ids is not None:
        return []
    listed, standard = ids.configured, default_boundaries(ids.num_layers)
    if ids.unit == "output_id" and listed == standard:
        return [
            RULE.finding(
                "warning",
                f"the list {listed} was read as output ids, but it equals SGLang's default in "
                "boundaries: every slot is probably one layer late",
                [
                    Seen("configured list", listed, ids.configured_at),
                    Seen("read as", ids.unit, ids.unit_why or "layer_ids.unit"),
                    Seen("default boundaries", standard, f"{ids.num_layers} layers"),
                    Seen("served output ids", rank.served_output_ids, "layer_ids.slots"),
                ],
                f"if the trainer wrote boundaries, set {VARIABLE}_UNIT=boundary or write "
                f"{[h - 1 for h in listed]} into the draft's config",
            )
        ]
    if ids.unit == "boundary":
        why = ids.unit_why or "the target's class does so"
        return [
            RULE.unknown(
                f"the list {listed} was read as boundaries ({why}); most trainers write output "
                "ids, and then every slot is one layer early",
                f"set {VARIABLE}_UNIT=output_id or =boundary once you know what the trainer wrote, "
                "or SGLANG_EAGLE3_PROBE_TRAINED_LAYER_IDS",
            )
        ]
    return []


RULE = Rule("E3P105", "layer ids may be in the other unit", PAGE, per_rank(_check))
