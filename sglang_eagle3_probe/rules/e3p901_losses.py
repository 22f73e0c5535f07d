"""E3P901: the trace lost records."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_eagle3_probe.rules.base import Page, Result, Rule, Seen, per_rank
from sglang_eagle3_probe.rules.evidence import RankEvidence

PAGE = Page(
    checks="The trace's own book of losses: records dropped, write errors, parts rotated away, and "
    "at level `stats` what passed by without being looked at, at level `capture` pieces of "
    "requests that were not written.",
    why="Numbers from a trace with holes are numbers of the rest. Wiring records survive rotation "
    "and bursts; verify rounds may not. Refusals that were not looked at count as `unknown`.",
    evidence="`losses` of the newest `progress` or `footer` record.",
    fix="Free the disk or make the directory writable; for dropped records raise "
    "SGLANG_EAGLE3_PROBE_QUEUE_RECORDS; for rotation raise SGLANG_EAGLE3_PROBE_FILE_MB or "
    "SGLANG_EAGLE3_PROBE_FILES. Draft logits that did not fit (`refusal_request`): lower "
    "--max-running-requests, --speculative-eagle-topk or --speculative-num-steps.",
    ignore="When only verify rounds are missing and enough are left; rates are still fair if the "
    "loss had nothing to do with the requests.",
)


WORDS = {
    "refusal_step": "draft steps whose logits could not be kept",
    "refusal_extend": "draft extends whose logits could not be kept",
    "refusal_tree": "draft trees that could not be kept",
    "refusal_verify": "verify forwards that could not be compared with their drafts",
    "refusal_request": "requests of verify forwards whose draft logits did not fit",
    "refusal_round": "verify forwards whose refusals were overwritten before they were read",
    "refusal_snapshot": "snapshots of refusals for which the reader was too busy",
    "stats_snapshot": "snapshots of value statistics for which the reader was too busy",
}
"""Kinds of what was missed."""


def _fix_for(missed: Mapping[str, int]) -> str:
    few = "nothing where these are few; otherwise "
    too_large = (
        "lower --max-running-requests, --speculative-eagle-topk or --speculative-num-steps, so "
        "that the draft's logits of all requests fit (the log line says how many do)"
    )
    report = (
        "report it with the model class and the log line that says what the draft's logits looked "
        "like"
    )
    if "refusal_request" not in missed:
        return few + report
    return few + too_large + ("" if len(missed) == 1 else f"; of the others {report}")


def _check(rank: RankEvidence) -> list[Result]:
    losses = rank.losses
    results: list[Result] = []
    dropped = {k: n for k, n in losses.dropped_records.items() if k != "progress"}
    if dropped or losses.write_errors:
        parts = [f"{n} {kind}" for kind, n in sorted(dropped.items())]
        if losses.write_errors:
            parts.append(f"{losses.write_errors} failed writes")
        results.append(
            RULE.finding(
                "warning",
                f"the trace is not whole: {', '.join(parts)}",
                [
                    Seen("records dropped", dict(losses.dropped_records), "losses.dropped_records"),
                    Seen("last write error", losses.last_write_error, "losses.last_write_error"),
                ],
                "free the disk or make SGLANG_EAGLE3_PROBE_DIR writable"
                if losses.write_errors
                else "raise SGLANG_EAGLE3_PROBE_QUEUE_RECORDS or write to a faster disk",
            )
        )
    if losses.rotated_away_files:
        results.append(
            RULE.finding(
                "note",
                f"{losses.rotated_away_records} verify rounds were rotated away with "
                f"{losses.rotated_away_files} parts; rates are of the newest",
                [Seen("parts deleted", losses.rotated_away_files, "losses.rotated_away_files")],
                "raise SGLANG_EAGLE3_PROBE_FILE_MB or SGLANG_EAGLE3_PROBE_FILES to keep more",
            )
        )
    if losses.missed:
        parts = [f"{n} {WORDS.get(kind, kind)}" for kind, n in sorted(losses.missed.items())]
        results.append(
            RULE.finding(
                "note",
                f"not everything was looked at: {', '.join(parts)}; the rest is valid",
                [Seen("not looked at", dict(losses.missed), "losses.missed")],
                _fix_for(losses.missed),
            )
        )
    if losses.captures:
        told = ", ".join(f"{n} {reason}" for reason, n in sorted(losses.captures.items()))
        results.append(
            RULE.finding(
                "note",
                f"captured requests are not whole: {told}",
                [Seen("pieces lost", dict(losses.captures), "losses.captures")],
                "docs/capture.md says for each reason what to raise or to change",
            )
        )
    return results


RULE = Rule("E3P901", "records were lost", PAGE, per_rank(_check))
