"""E3P706: the draft reads rows that the target did not hand out."""

from __future__ import annotations

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence
from sglang_eagle3_probe.rules.row_shares import judge_shares, share_text

PAGE = Page(
    checks="Rows at the draft's input (`extend_prefill_in`, `extend_verify_in`) against the rows "
    "that the target handed out in the same window, bit for bit.",
    why="Between the two lie buffers, index lists and hand-overs: a graph's buffer that did not "
    "run, rows cut off under data parallelism, a wrong source index, states of another round. The "
    "layer ids are right then, and the draft still reads something else.",
    evidence="`slot_stats.found_in_target`. The first and last forward of a window may be cut off, "
    "so windows are pooled by rows and two forwards of each are excused. More than 5 % of the "
    "remaining rows missing is an error, fewer a warning: the faults meant spoil whole forwards or "
    "whole requests, while the 5 % cover edge forwards larger than the mean. Windows whose padded "
    "rows are not known are left out.",
    fix="Compare with --disable-cuda-graph, with --disable-radix-cache and without data "
    "parallelism; the switch that cures it names the hand-over at fault.",
    ignore="When states are changed on purpose on their way (a rotation, a norm outside the "
    "draft).",
)


def _check(rank: RankEvidence) -> list[Result]:
    results: list[Result] = []
    for site in ("extend_prefill_in", "extend_verify_in"):
        values = rank.values.get(site)
        if values is None:
            continue
        seen, told = values.found, share_text(values.found)
        verdict = judge_shares(seen)
        if verdict == "too_few":
            results.append(
                RULE.unknown(
                    f"the draft's input at {site} was found among the target's states in {told}; "
                    "too few to tell a fault from windows cut at their edges",
                    "serve more requests, at least a few hundred rounds at level stats",
                )
            )
        elif verdict in ("broken", "doubtful"):
            results.append(
                RULE.finding(
                    "error" if verdict == "broken" else "warning",
                    f"the draft reads at {site} what the target did not hand out: only {told} were "
                    "found among the target's states",
                    [
                        Seen("rows found", told, "slot_stats.found_in_target"),
                        Seen("rows missed beyond window edges", round(seen.beyond), "pooled"),
                        Seen("tapped in", values.tapped, "slot_stats.tapped"),
                    ],
                    "compare with --disable-cuda-graph, with --disable-radix-cache and without "
                    "data parallelism: the switch that cures it names the hand-over at fault",
                )
            )
    return results


RULE = Rule("E3P706", "draft input is not from the target", PAGE, per_rank(_check))
