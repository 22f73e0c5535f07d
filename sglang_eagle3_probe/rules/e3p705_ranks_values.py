"""E3P705: tensor-parallel ranks hold different values of the same forward."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.analysis.rank_values import SiteComparison
from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, Severity
from sglang_eagle3_probe.rules.evidence import Evidence

PAGE = Page(
    checks="Digests of the same forward at the same site, over the tensor-parallel ranks of each "
    "data-parallel group. Hidden states are replicated: they must be equal in every bit.",
    why="Ranks that differ in an aux slot hold partial sums: the layer's all-reduce was put off "
    "into the next layer's fused norm, and the capture came before it. The draft then reads each "
    "rank's share of a sum. Fusion applies to small batches, so verify rounds are wrong while "
    "large prefills are right. The target's own output is not affected.",
    evidence="`slot_stats.tick_digests` of each rank. A tick is one forward of the site; when the "
    "same digests appear at other ticks, the ranks do not count the same forwards, and the rule "
    "says that it cannot decide.",
    fix="Start the server with --enforce-disable-flashinfer-allreduce-fusion; or update SGLang "
    "(from 0.5.21 the captures complete the sum first).",
    ignore="At `..._fc` sites of drafts whose `fc` is split over the ranks (Kimi-K2.5's): each "
    "rank holds its own columns, so a difference there alone is no more than a note.",
)

_FEW = 0.05
"""A smaller share of differing ticks is a warning: a put-off sum spoils every small batch."""


def _severity(worst: SiteComparison) -> Severity:
    if worst.site.endswith("_fc"):
        return "note"
    sure = len(worst.differing) - worst.differing_unsure
    return "error" if sure > _FEW * worst.ticks else "warning"


def _group(comparisons: Sequence[SiteComparison], evidence: Evidence) -> list[Result]:
    results: list[Result] = []
    shifted = [c.site for c in comparisons if c.shifted]
    apart = [c.site for c in comparisons if not c.ticks]
    ranks = ", ".join(comparisons[0].ranks)
    if shifted:
        results.append(
            RULE.unknown(
                f"{ranks} do not count the same forwards at {', '.join(shifted)}, so their values "
                "were not compared",
                "report this to sglang-eagle3-probe with the slot_stats records of these ranks",
            )
        )
    if len(apart) == len(comparisons):
        results.append(
            RULE.unknown(
                f"the windows of {ranks} have no forward in common, so their values were not "
                "compared",
                "serve more requests and read again",
            )
        )
    differ = [c for c in comparisons if c.differing and not c.shifted]
    # A split fc differs by design: it must not stand in front of a real difference.
    whole = [c for c in differ if not c.site.endswith("_fc")] or differ
    if not whole:
        return results
    first, severity = whole[0], min((_severity(c) for c in whole), key=_ORDER.index)
    equal = [c.site for c in comparisons if c.ticks and not c.differing]
    rows = [
        Seen(
            f"{c.site}: forwards that differ",
            f"{len(c.differing)} of {c.ticks}",
            f"slot_stats.tick_digests, first at tick {c.differing[0]}",
        )
        for c in whole[:6]
    ]
    rows += _rms(first, evidence)
    if equal:
        rows.append(Seen("equal at", ", ".join(equal), "slot_stats.tick_digests"))
    message = (
        f"{ranks} hold different values of the same forwards, first at {first.site}: "
        f"{len(first.differing)} of {first.ticks} differ"
    )
    if severity == "warning" and any(c.differing_unsure for c in whole):
        message += "; padded rows of CUDA graphs may be what differs"
    fix = (
        "start with --enforce-disable-flashinfer-allreduce-fusion (per-rank partial sums) or "
        "update SGLang, and read again"
    )
    if not first.site.startswith(("aux_", "target_", "extend_verify_in", "extend_prefill_in")):
        fix = (
            "the target's states are equal, the draft's are not: compare embedding, head and fc "
            "digests of the ranks (E3P404), then start with "
            "--enforce-disable-flashinfer-allreduce-fusion"
        )
    if severity == "note":
        fix = "nothing if the draft's fc is split over the ranks (Kimi-K2.5's is)"
    return [RULE.finding(severity, message, rows, fix), *results]


_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


def _rms(first: SiteComparison, evidence: Evidence) -> list[Seen]:
    seen = []
    for rank in evidence.ranks:
        values = rank.values.get(first.site)
        if values is not None and rank.label in first.ranks:
            rms = ", ".join(f"{slot.rms_mean:.5g}" for slot in values.slots)
            seen.append(Seen(f"RMS per slot on {rank.label}", rms, f"slot_stats, {first.site}"))
    return seen[:8]


def _check(evidence: Evidence, _earlier: Sequence[Result]) -> list[Result]:
    groups: dict[tuple[str, ...], list[SiteComparison]] = {}
    for comparison in evidence.rank_comparisons:
        groups.setdefault(comparison.ranks, []).append(comparison)
    return [r for members in groups.values() for r in _group(members, evidence)]


RULE = Rule("E3P705", "ranks hold different values", PAGE, _check)
