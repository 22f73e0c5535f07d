"""E3P702: a slot is zero throughout, or its size changed while serving."""

from __future__ import annotations

import time

from sglang_eagle3_probe.analysis.slot_values import (
    DRIFT_FACTOR,
    ENOUGH_ROWS,
    REFERENCE_WINDOWS,
    SiteValues,
    SlotValues,
)
from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Slots whose every value in every row is zero; and slots whose RMS fell or rose by a "
    f"factor of {DRIFT_FACTOR:g} or more, in a window of at least {ENOUGH_ROWS} rows, against the "
    f"first {REFERENCE_WINDOWS} such windows of the same slot.",
    why="A slot of zeros was allocated and never written: `fc` reads a part of its input that says "
    "nothing. A slot that collapses or explodes later reads a buffer that something else uses by "
    "then, or states of another phase. Acceptance that falls with uptime looks like this.",
    evidence="`slot_stats.slots[]`: `rms_mean`, `rms_min`, `rms_max`. The mean and the least row "
    "must both have moved, since a few rows of attention sinks move the mean of a short window "
    "alone.",
    fix="For zeros: look at the layer ids (a boundary that the model class never reaches), and "
    "compare with --disable-cuda-graph. For drift: compare with --disable-radix-cache and with "
    "--disable-cuda-graph, and look at what changed in the traffic at that time.",
    ignore="Drift, when the traffic itself changed kind (another language, images, empty prompts).",
)


def _dead(values: SiteValues, number: int, slot: SlotValues) -> Result:
    return RULE.finding(
        "error",
        f"{values.site} {values.name(number)} is dead: every value is zero in all {slot.rows} rows",
        [Seen("greatest RMS of a row", slot.rms_max, "slot_stats.slots[].rms_max")],
        "check that the model class reaches this boundary (a layer id past its last captured "
        "layer, a layer on another pipeline rank), and compare with --disable-cuda-graph",
    )


def _drift(values: SiteValues, number: int, slot: SlotValues) -> Result:
    drift = slot.drift
    mean, _ = drift.reference_rms
    how = "collapsed" if drift.collapsed else "exploded"
    if drift.collapsed and drift.exploded:
        how = "collapsed and exploded"
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(drift.first_wall_s or 0.0))
    return RULE.finding(
        "warning",
        f"the RMS of {values.site} {values.name(number)} {how} in {drift.windows} of "
        f"{drift.compared} windows: {drift.worst:.3g} times what it was at first",
        [
            Seen("RMS of the first windows", round(mean, 6), "slot_stats.slots[].rms_mean"),
            Seen("worst window against it", f"{drift.worst:.3g}", "slot_stats.slots[].rms_mean"),
            Seen("first such window", since, "slot_stats.wall_s"),
        ],
        "compare with --disable-radix-cache and with --disable-cuda-graph; if the traffic changed "
        "kind at that time, it may be that",
    )


def _check(rank: RankEvidence) -> list[Result]:
    results: list[Result] = []
    for values in rank.values.values():
        for number, slot in enumerate(values.slots):
            if slot.dead:
                results.append(_dead(values, number, slot))
            elif slot.drift.windows:
                results.append(_drift(values, number, slot))
    return results


RULE = Rule("E3P702", "dead or drifting slot", PAGE, per_rank(_check))
