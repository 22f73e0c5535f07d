"""E3P906: statistics of values were asked for and do not cover everything."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="With level `stats` or above: kinds of forwards that could not be tapped, forwards "
    "overwritten before they were read although every row was asked for, and windows whose "
    "padded rows are not known.",
    why="The rules on values are silent on what was not measured.",
    evidence="The newest `stats_coverage` record (`tapped`, `skipped`, `refused_drains`) and the "
    "`lost_ticks` and `joined` of the `slot_stats` records. Without "
    "SGLANG_EAGLE3_PROBE_STATS_ROWS the ring is read every one to five seconds, and forwards that "
    "are overwritten in between are passed over on purpose: the report counts them, this rule does "
    "not mind.",
    fix="`not_compiled`: a kind first seen while a CUDA graph was captured; `dtype`, `shape`, "
    "`slots`, `strides`: report them with the model class; `no_triton`: install Triton. Lost "
    "forwards are a matter of load and leave the rest valid.",
    ignore="Lost forwards, and padded rows as long as no other rule depends on them.",
)

_MANY_LOST = 0.1


def _check(rank: RankEvidence) -> list[Result]:
    if not rank.runs_model or not (rank.measures_values or rank.values):
        return []
    results = _not_tapped(rank)
    lost = {v.site: v.lost_ticks for v in rank.values.values() if v.lost_ticks}
    ticks = sum(v.ticks for v in rank.values.values())
    if lost and _every_row_asked(rank):
        share = sum(lost.values()) / (sum(lost.values()) + ticks)
        refused = rank.stats_coverage.refused_drains if rank.stats_coverage is not None else {}
        results.append(
            RULE.finding(
                "warning" if share > _MANY_LOST else "note",
                f"{sum(lost.values())} forwards ({share:.0%}) were overwritten before their "
                "values were read; the others are valid",
                [
                    Seen("by site", lost, "slot_stats.lost_ticks"),
                    Seen("drains refused", refused, "stats_coverage.refused_drains"),
                ],
                "nothing if enough is left; long prefills between verify rounds do this",
            )
        )
    unjoined = {v.site: v.unjoined_windows for v in rank.values.values() if v.unjoined_windows}
    if unjoined:
        windows = sum(v.windows for v in rank.values.values())
        results.append(
            RULE.finding(
                "note",
                f"padded rows of CUDA graphs may be among the values in {sum(unjoined.values())} "
                f"of {windows} windows ({', '.join(unjoined)})",
                [Seen("windows by site", unjoined, "slot_stats.joined")],
                "nothing; where it matters, compare with --disable-cuda-graph",
            )
        )
    return results


def _every_row_asked(rank: RankEvidence) -> bool:
    settings = rank.header.settings if rank.header is not None else {}
    return settings.get("SGLANG_EAGLE3_PROBE_STATS_ROWS") == "1"


def _not_tapped(rank: RankEvidence) -> list[Result]:
    coverage = rank.stats_coverage
    if not rank.values and coverage is None:
        if not rank.rounds.total:
            return []  # E3P905 says that nothing was served yet
        return [
            RULE.finding(
                "warning",
                "the level in force includes statistics of values, and none were recorded",
                [Seen("level", rank.header.level if rank.header else None, "header.level")],
                "look at the seams that are not patched and at the probe's faults, below",
            )
        ]
    skipped = coverage.skipped if coverage is not None else {}
    tapped = set(rank.values) | set(coverage.tapped if coverage is not None else {})
    results: list[Result] = []
    for severity, sites in (
        ("warning", [s for s in skipped if s not in tapped]),
        ("note", [s for s in skipped if s in tapped]),
    ):
        if sites:
            what = "never" if severity == "warning" else "not always"
            reasons = sorted({reason for site in sites for reason in skipped[site]})
            results.append(
                RULE.finding(
                    "warning" if severity == "warning" else "note",
                    f"values were {what} measured at {', '.join(sorted(sites))} "
                    f"({', '.join(reasons)})",
                    [Seen(site, skipped[site], "stats_coverage.skipped") for site in sites],
                    "not_compiled: send a request of that kind before the graphs are captured, or "
                    "use --disable-cuda-graph; other reasons: report them with the model class",
                )
            )
    return results


RULE = Rule("E3P906", "values not measured everywhere", PAGE, per_rank(_check))
