"""E3P902: the probe itself failed somewhere."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="Whether the probe's own code raised in the server, and whether a tap switched itself "
    "off after doing so repeatedly.",
    why="The server is not affected, but what that tap would have recorded is missing, so silence "
    "on its subject proves nothing.",
    evidence="`fault` records and `losses.faults`, `losses.disabled_sites`.",
    fix="Report the traceback to sglang-eagle3-probe, with the SGLang version.",
    ignore="When the tap concerned is of no interest, or SGLANG_EAGLE3_PROBE_FAIL_SITE is set.",
)


def _check(rank: RankEvidence) -> list[Result]:
    counts = dict(rank.losses.faults)
    off = set(rank.losses.disabled_sites)
    last: dict[str, str] = {}
    for fault in rank.faults:
        counts[fault.site] = max(counts.get(fault.site, 0), fault.count)
        last[fault.site] = fault.error
        if fault.disabled:
            off.add(fault.site)
    results: list[Result] = []
    for site, count in sorted(counts.items()):
        times = "once" if count == 1 else f"{count} times"
        what = "switched itself off" if site in off else "goes on"
        results.append(
            RULE.finding(
                "warning",
                f"the probe's `{site}` raised {times} and {what}; the server was not affected",
                [Seen("last error", last.get(site) or rank.losses.last_write_error, "fault.error")],
                "report the traceback to sglang-eagle3-probe "
                f"(sglang-eagle3-probe show {rank.files[0].parent} --record fault)",
            )
        )
    return results


RULE = Rule("E3P902", "the probe failed in places", PAGE, per_rank(_check))
